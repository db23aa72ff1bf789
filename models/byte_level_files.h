#pragma once

#include <filesystem>

#include "models/byte_level_bpe.h"

namespace specdec {

/// Reads a `tokenizer.json` that holds byte-level BPE. Whatever it asks for and this program does not do is refused by
/// name. `truncation` and `padding` are ignored, as `transformers` does unless asked.
ByteLevelBpe::Parts read_tokenizer_json(const std::filesystem::path& file);

/// Reads GPT-2's `vocab.json` and `merges.txt`, with the special tokens of tokenizer_config.json,
/// special_tokens_map.json and added_tokens.json where they are there.
ByteLevelBpe::Parts read_vocab_and_merges(const std::filesystem::path& directory);

}  // namespace specdec
