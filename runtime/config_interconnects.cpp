#include "runtime/config_interconnects.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "backend/error.h"
#include "runtime/interconnect_load.h"

namespace specdec {
namespace {

constexpr const char* kKey = "interconnect";
constexpr const char* kExpected = "native, a preset, the path of a file, or a list of them";

std::string beside_config(const std::string& name, const ConfigPlace& place) {
  std::error_code error;
  const std::filesystem::path path = place.directory / name;
  const bool is_path = name.find('/') != std::string::npos;
  return is_path && std::filesystem::is_regular_file(path, error) ? path.string() : name;
}

/// What is wrong inside a file begins with the file's name.
std::string with_key(const std::string& what) {
  const std::string key = std::string(kKey) + ": ";
  return what.starts_with(key) ? what : key + what;
}

InterconnectChoice read_interconnect(const YAML::Node& node, const ConfigPlace& place) {
  if (!node.IsScalar() || node.Scalar().empty()) reject(place, node, kKey, describe(node), kExpected);
  if (node.Scalar() == kNativeInterconnect) return std::nullopt;
  try {
    const std::string path = beside_config(node.Scalar(), place);
    Interconnect interconnect = load_interconnect(path);
    if (interconnect.name == kNativeInterconnect) {
      throw_bad_input(fmt::format("{}: name: found 'native', expected a name of its own", path));
    }
    return interconnect;
  } catch (const Error& error) {
    throw Error(error.kind(), place.at(node, "") + with_key(error.what()), error.where());
  }
}

}  // namespace

std::vector<InterconnectChoice> read_interconnects(const YAML::Node& node, const ConfigPlace& place) {
  if (!node.IsSequence()) return {read_interconnect(node, place)};
  if (node.size() == 0) reject(place, node, kKey, "an empty list", kExpected);
  std::vector<InterconnectChoice> choices;
  for (const auto& item : node) {
    InterconnectChoice choice = read_interconnect(item, place);
    const auto same = [&](const InterconnectChoice& other) { return name_of(other) == name_of(choice); };
    if (std::ranges::any_of(choices, same)) {
      reject(place, item, kKey, fmt::format("'{}' twice", name_of(choice)), "each interconnect once");
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace specdec
