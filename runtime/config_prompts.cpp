#include "runtime/config_prompts.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "backend/error.h"
#include "models/text_file.h"
#include "models/utf8.h"
#include "runtime/suggestion.h"

namespace specdec {
namespace {

constexpr std::uint64_t kMaxTextFile = std::uint64_t{16} << 20;
constexpr std::int64_t kMostRandom = std::int64_t{1} << 20;
constexpr std::string_view kIdRange = "a token id from 0 to 2147483647";
const std::vector<std::string> kPromptKeys = {"text", "file", "ids", "random"};

Token read_id(std::string_view word, const std::string& place) {
  const std::optional<Token> id = parse_number<Token>(word);
  if (!id || *id < 0) {
    throw_bad_input(fmt::format("{}: found '{}', expected {}", place, word.substr(0, 40), kIdRange));
  }
  return *id;
}

Prompt ids_from_yaml(const YAML::Node& node, const std::string& key, const YamlPlace& place) {
  if (!node.IsSequence() || node.size() == 0) {
    reject(place, node, key, node.IsSequence() ? "an empty list" : describe(node), "a list of token ids");
  }
  std::vector<Token> ids;
  for (const auto& id : node) {
    if (!id.IsScalar()) reject(place, id, key, describe(id), kIdRange);
    ids.push_back(read_id(id.Scalar(), place.at(id, key)));
  }
  return {.text = {}, .ids = std::move(ids)};
}

std::string scalar(const YAML::Node& node, const std::string& key, const YamlPlace& place) {
  if (!node.IsScalar()) reject(place, node, key, describe(node), "text");
  return node.Scalar();
}

Prompt read_prompt(const YAML::Node& node, const std::string& key, const YamlPlace& place) {
  if (!node.IsMap()) {
    if (!node.IsScalar())
      reject(place, node, key, describe(node), "text, or a map with one of text, file, ids, random");
    return prompt_from_text(node.Scalar(), place.at(node, key));
  }
  if (node.size() != 1) {
    reject(place, node, key, fmt::format("a map of {} keys", node.size()), "exactly one of text, file, ids, random");
  }
  const auto& entry = *node.begin();
  const std::string kind = scalar(entry.first, key, place);
  const std::string full = key + "." + kind;
  if (kind == "text") return prompt_from_text(scalar(entry.second, full, place), place.at(entry.second, full));
  if (kind == "ids") return ids_from_yaml(entry.second, full, place);
  if (kind == "random") return {.random = read_integer(place, entry.second, full, std::int64_t{1}, kMostRandom)};
  if (kind == "file") {
    return prompt_from_file(place.directory / scalar(entry.second, full, place), place.at(entry.second, full));
  }
  throw_bad_input(fmt::format("{}unknown key '{}'{}", place.at(entry.first, ""), full, suggestion(kind, kPromptKeys)));
}

}  // namespace

std::vector<Prompt> read_prompts(const YAML::Node& node, const YamlPlace& place) {
  if (!node.IsSequence() || node.size() == 0) {
    reject(place, node, "prompts", node.IsSequence() ? "an empty list" : describe(node), "a list of prompts");
  }
  std::vector<Prompt> prompts;
  for (const auto& prompt : node) {
    prompts.push_back(read_prompt(prompt, fmt::format("prompts[{}]", prompts.size()), place));
  }
  return prompts;
}

std::int64_t rough_tokens(const Prompt& prompt) {
  constexpr std::ptrdiff_t kBytesOfToken = 4;
  const auto ids = prompt.ids ? std::ssize(*prompt.ids) : 0;
  return std::max<std::int64_t>({prompt.random, ids, std::ssize(prompt.text) / kBytesOfToken});
}

std::string read_named_file(const std::filesystem::path& file, const std::string& place) {
  try {
    return read_text_file(file, kMaxTextFile);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", place, error.what()), error.where());
  }
}

Prompt prompt_of_random_ids(std::string_view count, const std::string& place) {
  const std::optional<std::int64_t> number = parse_number<std::int64_t>(count);
  if (!number || *number < 1 || *number > kMostRandom) {
    throw_bad_input(fmt::format("{}: found '{}', expected {}", place, count.substr(0, 40),
                                integer_range(std::int64_t{1}, kMostRandom)));
  }
  return {.random = *number};
}

Prompt prompt_from_text(std::string text, const std::string& place) {
  if (text.empty()) throw_bad_input(place + ": found an empty prompt, expected text");
  if (const auto at = first_invalid_utf8(text)) {
    throw_bad_input(fmt::format("{}: found a byte that is not UTF-8 at offset {}, expected UTF-8 text", place, *at));
  }
  return {.text = std::move(text), .ids = std::nullopt};
}

Prompt prompt_from_file(const std::filesystem::path& file, const std::string& place) {
  return prompt_from_text(read_named_file(file, place), fmt::format("{}: '{}'", place, file.string()));
}

Prompt prompt_from_ids(std::string_view ids, const std::string& place) {
  constexpr std::string_view kSpace = " \t\r\n,";
  std::vector<Token> tokens;
  for (auto at = ids.find_first_not_of(kSpace); at != std::string_view::npos; at = ids.find_first_not_of(kSpace, at)) {
    const std::size_t end = std::min(ids.find_first_of(kSpace, at), ids.size());
    tokens.push_back(read_id(ids.substr(at, end - at), place));
    at = end;
  }
  if (tokens.empty()) throw_bad_input(place + ": found an empty prompt, expected token ids");
  return {.text = {}, .ids = std::move(tokens)};
}

}  // namespace specdec
