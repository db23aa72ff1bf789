#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// Contents of a file. Throws kBadInput when it cannot be read or is larger than any tokenizer file.
std::string read_tokenizer_file(const std::filesystem::path& path);

/// A value inside a JSON file together with its place, so that every complaint names file, key, found and expected.
class JsonNode {
 public:
  /// The root of a file; throws kBadInput with the offset for what is not JSON.
  static JsonNode parse_file(const std::filesystem::path& path);

  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }

  std::string string() const;
  bool boolean() const;
  /// An id: 0 <= id < 2^24.
  std::int32_t id() const;
  /// The id that `key`, this value's name, spells.
  std::int32_t id_of_key(std::string_view key) const;

  /// A member of this object; the first form throws when it is missing, the second takes a missing one and null for the
  /// same.
  JsonNode at(std::string_view key) const;
  std::optional<JsonNode> find(std::string_view key) const;
  bool flag(std::string_view key, bool otherwise) const;
  /// `type` of this object.
  std::string type() const { return at("type").string(); }

  std::vector<JsonNode> elements() const;
  std::vector<std::pair<std::string, JsonNode>> members() const;

  /// "FILE: KEY"
  std::string where() const;
  /// Throws kBadInput "FILE: KEY: found VALUE, expected `expected`".
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  JsonNode(std::shared_ptr<const nlohmann::json> root, const nlohmann::json* value, std::string file, std::string path)
      : root_(std::move(root)), value_(value), file_(std::move(file)), path_(std::move(path)) {}
  std::string member_path(std::string_view key) const;
  JsonNode child(const nlohmann::json& value, const std::string& path) const { return {root_, &value, file_, path}; }

  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace specdec
