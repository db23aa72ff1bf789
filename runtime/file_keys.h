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
FileKey required(FileKey key);

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
