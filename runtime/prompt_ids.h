#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/tokenizer.h"
#include "runtime/config.h"

namespace specdec {

/// The key of prompt `index` of a config, for errors.
std::string prompt_name(std::size_t index);

/// Prompt `index` of `config` as tokens of a model with `vocabulary` of them: drawn, given, or its text in those of `tokenizer`, which may be null. A text
/// without one, or that one cannot encode, is bad input.
std::vector<Token> prompt_ids(const RunConfig& config, std::size_t index, const Tokenizer* tokenizer,
                              std::int64_t vocabulary);

}  // namespace specdec
