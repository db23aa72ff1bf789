#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"

namespace specdec {

/// Token ids written as numbers with white space between them. Throws kBadInput for one that is no number from 0 to vocabulary - 1;
/// `place` says where the text stands.
std::vector<Token> parse_token_ids(std::string_view text, std::int64_t vocabulary, const std::string& place);

}  // namespace specdec
