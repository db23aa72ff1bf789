#include "runtime/yaml_map.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "backend/error.h"
#include "models/utf8.h"
#include "runtime/suggestion.h"

namespace specdec {
namespace {

std::size_t line_of(std::string_view text, std::size_t offset) {
  return 1 +
         static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
}

}  // namespace

void require_yaml_text(const std::string& yaml, const std::string& name) {
  if (const auto nul = yaml.find('\0'); nul != std::string::npos) {
    throw_bad_input(fmt::format("{}:{}: found a NUL byte, expected YAML text", name, line_of(yaml, nul)));
  }
  if (const auto bad = first_invalid_utf8(yaml)) {
    throw_bad_input(
        fmt::format("{}:{}: found a byte that is not UTF-8, expected YAML text", name, line_of(yaml, *bad)));
  }
}

YAML::Node read_yaml_map(const std::string& yaml, const std::string& name) {
  require_yaml_text(yaml, name);
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(yaml);
  } catch (const YAML::Exception& error) {
    throw_bad_input(
        fmt::format("{}:{}: found broken YAML ({}), expected a map of keys", name, error.mark.line + 1, error.msg));
  }
  if (documents.size() > 1) {
    throw_bad_input(fmt::format("{}: found {} YAML documents, expected one", name, documents.size()));
  }
  if (documents.empty() || !documents[0].IsMap()) {
    throw_bad_input(fmt::format("{}: found {}, expected a map of keys", name,
                                documents.empty() ? "nothing" : describe(documents[0])));
  }
  return documents[0];
}

bool gives_section(const GivenKeys& given, std::string_view section) {
  const std::string prefix = std::string(section) + '.';
  const auto first_key = given.lower_bound(prefix);
  return given.contains(section) || (first_key != given.end() && first_key->starts_with(prefix));
}

KeyNames::KeyNames(std::vector<std::string> keys) {
  for (const std::string& key : keys) {
    const std::size_t dot = key.find('.');
    if (dot == std::string::npos || is_section(key.substr(0, dot))) continue;
    sections_.push_back(key.substr(0, dot));
  }
  names_ = sections_;
  names_.insert(names_.end(), keys.begin(), keys.end());
}

bool KeyNames::is_section(std::string_view name) const { return std::ranges::find(sections_, name) != sections_.end(); }

YamlPlace KeyNames::enter(const std::string& name, const YAML::Node& written, const YamlPlace& place,
                          GivenKeys& given) const {
  if (std::ranges::find(names_, name) == names_.end()) {
    throw_bad_input(
        fmt::format("{}unknown key '{}'{}", place.at(written, ""), name.substr(0, 80), key_suggestion(name, names_)));
  }
  if (!given.insert(name).second) {
    throw_bad_input(fmt::format("{}duplicate key '{}', expected it once", place.at(written, ""), name));
  }
  YamlPlace here = place;
  here.null_line = written.Mark().line;
  return here;
}

void KeyNames::read(const YAML::Node& map, const YamlPlace& place, GivenKeys& given, const ReadKey& read_key) const {
  read_section("", map, place, given, read_key);
}

void KeyNames::read_section(const std::string& section, const YAML::Node& map, const YamlPlace& place, GivenKeys& given,
                            const ReadKey& read_key) const {
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) {
      reject(place, entry.first, section.empty() ? "key" : section, describe(entry.first), "a name");
    }
    const std::string name = section.empty() ? entry.first.Scalar() : section + '.' + entry.first.Scalar();
    const YamlPlace here = enter(name, entry.first, place, given);
    if (!is_section(name)) {
      read_key(name, entry.second, here);
      continue;
    }
    if (!entry.second.IsMap()) reject(place, entry.first, name, describe(entry.second), "a map of keys");
    read_section(name, entry.second, place, given, read_key);
  }
}

}  // namespace specdec
