#include "runtime/yaml_value.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "backend/error.h"
#include "models/utf8.h"
#include "runtime/suggestion.h"

namespace specdec {

std::string YamlPlace::at(const YAML::Node& node, std::string_view key) const {
  const int line = node.IsNull() && null_line >= 0 ? null_line : node.Mark().line;
  return has_lines && line >= 0 ? fmt::format("{}:{}: {}", name, line + 1, key) : fmt::format("{}: {}", name, key);
}

void reject(const YamlPlace& place, const YAML::Node& node, std::string_view key, std::string_view found,
            std::string_view expected) {
  throw_bad_input(fmt::format("{}: found {}, expected {}", place.at(node, key), found, expected));
}

std::string describe(const YAML::Node& node) {
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return "a list";
  if (!node.IsScalar()) return "nothing";
  std::string text;
  for (const char c : node.Scalar().substr(0, 60)) text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return fmt::format("{}'{}'", is_plain_scalar(node) ? "" : "the string ", take_valid_utf8(text, true));
}

bool is_plain_scalar(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

std::string_view number_text(const YAML::Node& node) {
  if (!is_plain_scalar(node)) return {};
  const std::string_view text = node.Scalar();
  const bool plus = text.starts_with('+') && !text.starts_with("+-");
  return text.substr(plus ? 1 : 0);
}

double read_number(const YamlPlace& place, const YAML::Node& node, std::string_view key, std::string_view accepts,
                   const std::function<bool(double)>& valid) {
  const std::optional<double> value = parse_number<double>(number_text(node));
  if (!value || !valid(*value)) reject(place, node, key, describe(node), accepts);
  return *value;
}

bool read_boolean(const YamlPlace& place, const YAML::Node& node, std::string_view key) {
  bool value = false;
  if (!is_plain_scalar(node) || !YAML::convert<bool>::decode(node, value)) {
    reject(place, node, key, describe(node), kBoolean);
  }
  return value;
}

std::string word_list(std::span<const std::string> words) { return fmt::format("one of {}", fmt::join(words, ", ")); }

std::size_t read_word(const YamlPlace& place, const YAML::Node& node, std::string_view key,
                      std::span<const std::string> words) {
  const auto word = node.IsScalar() ? std::ranges::find(words, node.Scalar()) : words.end();
  if (word == words.end()) {
    reject(place, node, key, describe(node),
           word_list(words) + (node.IsScalar() ? suggestion(node.Scalar(), words) : ""));
  }
  return static_cast<std::size_t>(word - words.begin());
}

}  // namespace specdec
