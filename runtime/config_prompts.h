#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config.h"
#include "runtime/yaml_value.h"

namespace specdec {

/// The list under `prompts`: strings, or maps with one of text, file, ids, random.
std::vector<Prompt> read_prompts(const YAML::Node& node, const YamlPlace& place);

/// The prompt that is all of a file, byte for byte; `place` begins the error.
Prompt prompt_from_file(const std::filesystem::path& file, const std::string& place);
/// Ids with white space or commas between them.
Prompt prompt_from_ids(std::string_view ids, const std::string& place);
/// That many random ids.
Prompt prompt_of_random_ids(std::string_view count, const std::string& place);
/// Refuses an empty text and one that is not UTF-8.
Prompt prompt_from_text(std::string text, const std::string& place);

/// How many tokens it has where no tokenizer is asked: of a text, of English or of a program, roughly. For plans, which run nothing.
std::int64_t rough_tokens(const Prompt& prompt);

/// All of a regular file of at most 16 MiB, which was named at `place`. Throws kBadInput "PLACE: FILE: ...".
std::string read_named_file(const std::filesystem::path& file, const std::string& place);

}  // namespace specdec
