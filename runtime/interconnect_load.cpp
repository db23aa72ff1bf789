#include "runtime/interconnect_load.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "backend/error.h"
#include "runtime/config_prompts.h"
#include "runtime/paths.h"
#include "runtime/yaml_map.h"

namespace specdec {
namespace {

constexpr double kMicrosecond = 1e-6;
constexpr double kGigabyte = 1e9;
constexpr double kLongestMicroseconds = 1e6;
constexpr int kFewestRanks = 2;
constexpr int kMostRanks = 1 << 20;

/// One of the file's; `read` sets what it stands for.
struct Key {
  std::string name;
  std::string accepts;
  std::function<void(const YAML::Node&, const YamlPlace&)> read;
  bool required = false;  ///< in the file or, with a dot in its name, in its section
};

Key number(const std::string& name, double low, double high, double unit, double& into) {
  const std::string accepts = fmt::format("a number from {} to {}", low, high);
  const auto valid = [=](double value) { return value >= low && value <= high; };
  return {name, accepts, [=, &into](const YAML::Node& node, const YamlPlace& place) {
            into = unit * read_number(place, node, name, accepts, valid);
          }};
}

template <typename Into>
Key ranks(const std::string& name, Into& into) {
  return {name, integer_range(kFewestRanks, kMostRanks), [=, &into](const YAML::Node& node, const YamlPlace& place) {
            into = read_integer(place, node, name, kFewestRanks, kMostRanks);
          }};
}

Key text(const std::string& name, const std::string& accepts, std::string& into) {
  return {name, accepts, [=, &into](const YAML::Node& node, const YamlPlace& place) {
            if (!node.IsScalar() || node.Scalar().empty()) reject(place, node, name, describe(node), accepts);
            into = node.Scalar();
          }};
}

Key algorithm(const std::string& name, LinkAlgorithm& into) {
  std::vector<std::string> words;
  words.reserve(kLinkAlgorithms.size());
  for (const LinkAlgorithm each : kLinkAlgorithms) words.emplace_back(name_of(each));
  return {name, word_list(words), [=, &into](const YAML::Node& node, const YamlPlace& place) {
            into = kLinkAlgorithms.at(read_word(place, node, name, words));
          }};
}

Key required(Key key) {
  key.required = true;
  return key;
}

void add_link(std::vector<Key>& keys, const std::string& section, Link& link) {
  keys.push_back(required(algorithm(section + "algorithm", link.algorithm)));
  keys.push_back(required(number(section + "latency_us", 0, kLongestMicroseconds, kMicrosecond, link.latency)));
  keys.push_back(required(number(section + "bandwidth_GBps", 1e-3, 1e6, kGigabyte, link.bandwidth)));
}

/// The table of keys, which set `out` and `node`.
std::vector<Key> keys_of(Interconnect& out, Link& node) {
  std::vector<Key> keys;
  keys.push_back(text("name", "a name", out.name));
  keys.push_back(required(text("source", "where the figures are from", out.source)));
  add_link(keys, "", out.link);
  keys.push_back(number("overhead_us", 0, kLongestMicroseconds, kMicrosecond, out.overhead));
  keys.push_back(number("multiplier", 1e-3, 1e3, 1, out.multiplier));
  keys.push_back(ranks("ranks", out.ranks));
  keys.push_back(ranks("ranks_per_node", out.ranks_per_node));
  add_link(keys, "node.", node);
  keys.push_back(number("jitter.sigma", 0, 2, 1, out.jitter.sigma));
  keys.push_back(number("jitter.tail_probability", 0, 1, 1, out.jitter.tail_probability));
  keys.push_back(number("jitter.tail_mean_us", 0, kLongestMicroseconds, kMicrosecond, out.jitter.tail_mean));
  return keys;
}

/// Reads all that the file gives, and returns what that was.
GivenKeys read_keys(const std::string& yaml, const std::string& place, const std::vector<Key>& keys) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const Key& key : keys) names.push_back(key.name);
  GivenKeys given;
  KeyNames(names).read(read_yaml_map(yaml, place), {.name = place, .directory = {}}, given,
                       [&](const std::string& name, const YAML::Node& value, const YamlPlace& here) {
                         std::ranges::find(keys, name, &Key::name)->read(value, here);
                       });
  for (const Key& key : keys) {
    const std::size_t dot = key.name.find('.');
    const bool expected = key.required && (dot == std::string::npos || gives_section(given, key.name.substr(0, dot)));
    if (expected && !given.contains(key.name)) {
      throw_bad_input(fmt::format("{}: {}: found nothing, expected {}", place, key.name, key.accepts));
    }
  }
  return given;
}

}  // namespace

Interconnect parse_interconnect(const std::string& yaml, const std::string& place, const std::string& name) {
  Interconnect out;
  Link node;
  out.name = name;
  const GivenKeys given = read_keys(yaml, place, keys_of(out, node));
  const bool has_node = gives_section(given, "node");
  if (has_node) out.node = node;
  const auto refuse = [&](const char* why) { throw_bad_input(fmt::format("{}: {}", place, why)); };
  if (has_node && !given.contains("ranks_per_node")) {
    refuse("ranks_per_node: found nothing beside node, expected how many ranks a node has");
  }
  if (!has_node && given.contains("ranks_per_node")) {
    refuse("node: found nothing beside ranks_per_node, expected the link inside a node");
  }
  if (out.jitter.tail_probability > 0 && out.jitter.tail_mean == 0) {
    refuse("jitter.tail_mean_us: found nothing beside tail_probability, expected how long a delay is");
  }
  if (out.name == kNativeInterconnect) refuse("name: found 'native', expected a name of its own");
  return out;
}

Interconnect load_interconnect(const std::string& name, const std::string& place,
                               const std::filesystem::path& directory) {
  const std::filesystem::path file = find_interconnect(name, directory, place);
  return parse_interconnect(read_named_file(file, place), fmt::format("{}: {}", place, file.string()), file.stem());
}

InterconnectChoice load_choice(const std::string& name, const std::string& place,
                               const std::filesystem::path& directory) {
  if (name == kNativeInterconnect) return std::nullopt;
  return load_interconnect(name, place, directory);
}

}  // namespace specdec
