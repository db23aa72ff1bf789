#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/yaml_map.h"

/// The keys of a small file that describes something (an interconnect, hardware), as a table that reads and checks it. Errors are kBadInput and one line:
/// place, line, key, what was found, what was expected, the nearest name.
namespace specdec {

struct FileKey {
  std::string name;     ///< with a section: "node.latency_us"
  std::string accepts;  ///< "a number from 0 to 2"
  std::function<void(const YAML::Node&, const YamlPlace&)> read;
  bool required = false;  ///< in the file or, with a dot in its name, in its section
};

namespace file_key {

/// Times `unit` into `into`, which outlives the key. `low` and `high` are as they are written.
FileKey number(const std::string& name, double low, double high, double unit, double& into);
FileKey text(const std::string& name, const std::string& accepts, std::string& into);
FileKey boolean(const std::string& name, bool& into);
/// A list of at least one item; `read` gets each, and whether it is the first.
FileKey items(const std::string& name, const std::string& accepts,
              const std::function<void(const YAML::Node&, const YamlPlace&, bool)>& read);
FileKey required(FileKey key);

/// Items in place of what `into` had; while one is read, those before it are there.
template <typename Item>
FileKey list(const std::string& name, const std::string& accepts, std::vector<Item>& into,
             const std::function<Item(const YAML::Node&, const YamlPlace&)>& read) {
  return items(name, accepts, [=, &into](const YAML::Node& node, const YamlPlace& place, bool first) {
    if (first) into.clear();
    into.push_back(read(node, place));
  });
}

/// `Into`: int, or std::optional of it.
template <typename Into>
FileKey integer(const std::string& name, int low, int high, Into& into) {
  return {name, integer_range(low, high), [=, &into](const YAML::Node& node, const YamlPlace& place) {
            into = read_integer(place, node, name, low, high);
          }};
}

}  // namespace file_key

/// Reads all that the file gives, and returns what that was; `place` stands for it in errors.
GivenKeys read_file_keys(const std::string& yaml, const std::string& place, const std::vector<FileKey>& keys);

}  // namespace specdec
