#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/parse_number.h"

namespace YAML {
class Node;
}

/// Values of a YAML file, read strictly: one that is not as expected is kBadInput in one line.
namespace specdec {

/// Where a value was written, for errors.
struct YamlPlace {
  std::string name;                 ///< the file, or "--set"
  std::filesystem::path directory;  ///< where the files that it names are looked up
  bool has_lines = true;            ///< false for --set: errors then name no line
  int null_line = -1;               ///< for a key without a value: YAML marks only what follows it

  /// "NAME:LINE: KEY", or without the line.
  std::string at(const YAML::Node& node, std::string_view key) const;
};

/// Throws kBadInput "F:LINE: KEY: found FOUND, expected EXPECTED".
[[noreturn]] void reject(const YamlPlace& place, const YAML::Node& node, std::string_view key, std::string_view found,
                         std::string_view expected);
/// What a node holds, in a few words: "'four'", "a list", "a map", "nothing".
std::string describe(const YAML::Node& node);

/// A scalar that is not a quoted string, for all that is no text.
bool is_plain_scalar(const YAML::Node& node);
/// Its characters, a plus sign left out; none of any other node.
std::string_view number_text(const YAML::Node& node);

template <typename Integer>
std::string integer_range(Integer low, Integer high) {
  return fmt::format("an integer from {} to {}", low, high);
}

template <typename Integer>
Integer read_integer(const YamlPlace& place, const YAML::Node& node, std::string_view key, Integer low, Integer high) {
  const std::optional<Integer> value = parse_number<Integer>(number_text(node));
  if (!value || *value < low || *value > high) reject(place, node, key, describe(node), integer_range(low, high));
  return *value;
}

/// `accepts` says in words what `valid` tests; it must refuse NaN.
double read_number(const YamlPlace& place, const YAML::Node& node, std::string_view key, std::string_view accepts,
                   const std::function<bool(double)>& valid);

/// What read_boolean() accepts, in words.
inline constexpr const char* kBoolean = "true or false";
bool read_boolean(const YamlPlace& place, const YAML::Node& node, std::string_view key);

/// "one of a, b, c".
std::string word_list(std::span<const std::string> words);
/// Which of the `words` it is.
std::size_t read_word(const YamlPlace& place, const YAML::Node& node, std::string_view key,
                      std::span<const std::string> words);

}  // namespace specdec
