#include "runtime/config_interconnects.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "runtime/interconnect_load.h"

namespace specdec {
namespace {

constexpr const char* kKey = "interconnect";
constexpr const char* kExpected = "native, a preset, the path of a file, or a list of them";

InterconnectChoice read_interconnect(const YAML::Node& node, const YamlPlace& place) {
  if (!node.IsScalar() || node.Scalar().empty()) reject(place, node, kKey, describe(node), kExpected);
  return load_choice(node.Scalar(), place.at(node, kKey), place.directory);
}

}  // namespace

std::vector<InterconnectChoice> read_interconnects(const YAML::Node& node, const YamlPlace& place) {
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
