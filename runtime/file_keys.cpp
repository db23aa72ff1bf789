#include "runtime/file_keys.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "backend/error.h"

namespace specdec {
namespace file_key {

FileKey number(const std::string& name, double low, double high, double unit, double& into) {
  const std::string accepts = fmt::format("a number from {} to {}", low, high);
  const auto valid = [=](double value) { return value >= low && value <= high; };
  return {name, accepts, [=, &into](const YAML::Node& node, const YamlPlace& place) {
            into = unit * read_number(place, node, name, accepts, valid);
          }};
}

FileKey text(const std::string& name, const std::string& accepts, std::string& into) {
  return {name, accepts, [=, &into](const YAML::Node& node, const YamlPlace& place) {
            if (!node.IsScalar() || node.Scalar().empty()) reject(place, node, name, describe(node), accepts);
            into = node.Scalar();
          }};
}

FileKey boolean(const std::string& name, bool& into) {
  return {name, kBoolean,
          [=, &into](const YAML::Node& node, const YamlPlace& place) { into = read_boolean(place, node, name); }};
}

FileKey items(const std::string& name, const std::string& accepts,
              const std::function<void(const YAML::Node&, const YamlPlace&, bool)>& read) {
  return {name, accepts, [=](const YAML::Node& node, const YamlPlace& place) {
            if (!node.IsSequence() || node.size() == 0) reject(place, node, name, describe(node), accepts);
            bool first = true;
            for (const auto& item : node) {
              read(item, place, first);
              first = false;
            }
          }};
}

FileKey required(FileKey key) {
  key.required = true;
  return key;
}

}  // namespace file_key

GivenKeys read_file_keys(const std::string& yaml, const std::string& place, const std::vector<FileKey>& keys) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const FileKey& key : keys) names.push_back(key.name);
  GivenKeys given;
  KeyNames(names).read(read_yaml_map(yaml, place), {.name = place, .directory = {}}, given,
                       [&](const std::string& name, const YAML::Node& value, const YamlPlace& here) {
                         std::ranges::find(keys, name, &FileKey::name)->read(value, here);
                       });
  for (const FileKey& key : keys) {
    const std::size_t dot = key.name.find('.');
    const bool expected = key.required && (dot == std::string::npos || gives_section(given, key.name.substr(0, dot)));
    if (expected && !given.contains(key.name)) {
      throw_bad_input(fmt::format("{}: {}: found nothing, expected {}", place, key.name, key.accepts));
    }
  }
  return given;
}

}  // namespace specdec
