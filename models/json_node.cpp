#include "models/json_node.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "backend/error.h"
#include "models/json_shown.h"
#include "models/limits.h"
#include "models/text_file.h"

namespace specdec {
namespace {

constexpr std::uint64_t kLargestFile = std::uint64_t{256} << 20;

}  // namespace

std::string read_tokenizer_file(const std::filesystem::path& path) { return read_text_file(path, kLargestFile); }

JsonNode JsonNode::parse_file(const std::filesystem::path& path) {
  const std::string text = read_tokenizer_file(path);
  auto root = std::make_shared<nlohmann::json>();
  try {
    *root = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw_bad_input(fmt::format("{}: found a syntax error at byte {} of {}, expected JSON", path.string(), error.byte,
                                text.size()));
  } catch (const nlohmann::json::exception& error) {  // a number that no type holds
    throw_bad_input(fmt::format("{}: found {}, expected JSON", path.string(), error.what()));
  }
  const nlohmann::json* value = root.get();
  return {std::move(root), value, path.string(), ""};
}

std::string JsonNode::string() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::int32_t JsonNode::id() const {
  const bool fits = value_->is_number_unsigned() && value_->get<std::uint64_t>() < kLargestVocabulary;
  if (!fits) refuse(fmt::format("an id from 0 to {}", kLargestVocabulary - 1));
  return value_->get<std::int32_t>();
}

std::int32_t JsonNode::id_of_key(std::string_view key) const {
  std::uint64_t id = kLargestVocabulary;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id >= kLargestVocabulary) {
    refuse(fmt::format("its key to be an id from 0 to {}", kLargestVocabulary - 1));
  }
  return static_cast<std::int32_t>(id);
}

JsonNode JsonNode::at(std::string_view key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) refuse(fmt::format("an object with the key '{}'", key));
  return child(*found, member_path(key));
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return at(key);
}

bool JsonNode::flag(std::string_view key, bool otherwise) const {
  const auto node = find(key);
  return node ? node->boolean() : otherwise;
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) refuse("an array");
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    nodes.push_back(child((*value_)[i], fmt::format("{}[{}]", path_, i)));
  return nodes;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  if (!value_->is_object()) refuse("an object");
  std::vector<std::pair<std::string, JsonNode>> nodes;
  nodes.reserve(value_->size());
  for (const auto& [key, value] : value_->items()) nodes.emplace_back(key, child(value, member_path(key)));
  return nodes;
}

std::string JsonNode::member_path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::string JsonNode::where() const { return path_.empty() ? file_ : fmt::format("{}: {}", file_, path_); }

void JsonNode::refuse(std::string_view expected) const {
  throw_bad_input(fmt::format("{}: found {}, expected {}", where(), shown(*value_), expected));
}

}  // namespace specdec
