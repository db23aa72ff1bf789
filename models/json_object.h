#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// A JSON object of a file whose values are taken out by key and type. A value of another type or out of range is
/// kBadInput "FILE: KEY: found X, expected Y". A key with the value null counts as missing, as Hugging Face writes
/// defaults so.
class JsonObject {
 public:
  /// Parses a file of at most 16 MiB.
  static JsonObject load(const std::filesystem::path& file);

  bool has(std::string_view key) const;
  const std::string& file() const { return file_; }
  /// Keys that are there, null or not.
  std::vector<std::string> keys() const;

  // With a fallback the key may be missing; without one it may not.
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high, std::int64_t fallback) const;
  /// Finite, in [low, high].
  double number(std::string_view key, double low, double high) const;
  double number(std::string_view key, double low, double high, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  JsonObject object(std::string_view key) const;
  /// One integer or a list of them, in [low, high]; empty when missing.
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t low, std::int64_t high) const;

  /// Throws kBadInput: "FILE: KEY: found <the value>, expected ...".
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  JsonObject(std::string file, std::string prefix, std::shared_ptr<const nlohmann::json> root,
             const nlohmann::json* value);
  const nlohmann::json& at(std::string_view key, std::string_view expected) const;

  std::string file_;
  std::string prefix_;  // of nested keys: "rope_scaling."
  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* value_;
};

}  // namespace specdec
