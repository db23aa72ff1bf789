#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/yaml_value.h"

/// A file of keys, before anybody looks at their values. Errors are kBadInput and one line.
namespace specdec {

/// Throws for a NUL byte and for what is not UTF-8; `name` stands for the file.
void require_yaml_text(const std::string& yaml, const std::string& name);

/// The map that `yaml`, one document, holds.
YAML::Node read_yaml_map(const std::string& yaml, const std::string& name);

/// The keys and sections that somebody wrote.
using GivenKeys = std::set<std::string, std::less<>>;
/// True when `given` has `section` or a key of it.
bool gives_section(const GivenKeys& given, std::string_view section);

/// Takes a key's value; `place` is the value's.
using ReadKey = std::function<void(const std::string& key, const YAML::Node& value, const YamlPlace& place)>;

/// The keys of one kind of file by their full names. "decode.k" is k in the section decode: a map, or written with the dot.
class KeyNames {
 public:
  explicit KeyNames(std::vector<std::string> keys);

  bool is_section(std::string_view name) const;
  /// Enters a key or section, whose name stands at `written`, into `given`, and returns the place of its value. Throws for one that
  /// there is none of, with the nearest, and for one that was given before.
  YamlPlace enter(const std::string& name, const YAML::Node& written, const YamlPlace& place, GivenKeys& given) const;
  /// Enters and reads all of `map` and its sections.
  void read(const YAML::Node& map, const YamlPlace& place, GivenKeys& given, const ReadKey& read_key) const;

 private:
  void read_section(const std::string& section, const YAML::Node& map, const YamlPlace& place, GivenKeys& given,
                    const ReadKey& read_key) const;

  std::vector<std::string> names_;  // of the sections and the keys
  std::vector<std::string> sections_;
};

}  // namespace specdec
