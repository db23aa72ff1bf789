#include "runtime/interconnect_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <set>
#include <vector>

#include "backend/error.h"
#include "runtime/config_keys.h"
#include "runtime/config_prompts.h"
#include "runtime/paths.h"
#include "runtime/yaml_map.h"

namespace specdec {
namespace {

constexpr double kMicrosecond = 1e-6;
constexpr double kGigabyte = 1e9;
constexpr double kLongestMicroseconds = 1e6;
constexpr int kMostRanks = 1 << 20;
constexpr std::array kAlgorithms = {LinkAlgorithm::kRing, LinkAlgorithm::kTree, LinkAlgorithm::kOneShot};

/// Where a value stands and what it is called with the maps around it ("jitter.sigma").
struct Entry {
  const ConfigPlace& place;
  const YAML::Node& node;
  std::string key;

  [[noreturn]] void refuse(const std::string& expected) const { reject(place, node, key, describe(node), expected); }
};

struct Key {
  std::string name;
  bool required;
  std::string accepts;
  std::function<void(const Entry&)> read;
};

Key number(std::string name, bool required, double low, double high, double unit, double& into) {
  std::string accepts = fmt::format("a number from {} to {}", low, high);
  return {std::move(name), required, accepts, [=, &into](const Entry& entry) {
            const std::string text = entry.node.IsScalar() && entry.node.Tag() != "!" ? entry.node.Scalar() : "";
            double value = 0;
            const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool read = error == std::errc() && stop == text.data() + text.size();
            if (!read || !(value >= low && value <= high)) {
              entry.refuse(accepts);
            }
            into = value * unit;
          }};
}

/// A number of ranks.
Key count(std::string name, bool required, int low, const std::function<void(int)>& set) {
  std::string accepts = fmt::format("an integer from {} to {}", low, kMostRanks);
  return {std::move(name), required, accepts, [=](const Entry& entry) {
            const std::string text = entry.node.IsScalar() && entry.node.Tag() != "!" ? entry.node.Scalar() : "";
            int value = 0;
            const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error != std::errc() || stop != text.data() + text.size() || value < low || value > kMostRanks) {
              entry.refuse(accepts);
            }
            set(value);
          }};
}

Key text(std::string name, bool required, const std::string& accepts, std::string& into) {
  return {std::move(name), required, accepts, [=, &into](const Entry& entry) {
            if (!entry.node.IsScalar() || entry.node.Scalar().empty()) {
              entry.refuse(accepts);
            }
            into = entry.node.Scalar();
          }};
}

Key algorithm(LinkAlgorithm& into) {
  std::vector<std::string> words;
  words.reserve(kAlgorithms.size());
  for (const LinkAlgorithm each : kAlgorithms) {
    words.emplace_back(name_of(each));
  }
  std::string accepts = fmt::format("one of {}", fmt::join(words, ", "));
  return {"algorithm", true, accepts, [=, &into](const Entry& entry) {
            for (std::size_t i = 0; i < words.size(); ++i) {
              if (entry.node.IsScalar() && entry.node.Scalar() == words[i]) {
                into = kAlgorithms[i];
                return;
              }
            }
            entry.refuse(accepts + (entry.node.IsScalar() ? suggestion(entry.node.Scalar(), words) : ""));
          }};
}

std::vector<Key> link_keys(Link& link) {
  return {algorithm(link.algorithm), number("latency_us", true, 0, kLongestMicroseconds, kMicrosecond, link.latency),
          number("bandwidth_GBps", true, 1e-3, 1e6, kGigabyte, link.bandwidth)};
}

void read_map(const YAML::Node& map, const std::string& prefix, const std::vector<Key>& keys,
              const ConfigPlace& place) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const Key& key : keys) {
    names.push_back(key.name);
  }
  std::set<std::string> given;
  for (const auto& item : map) {
    if (!item.first.IsScalar()) reject(place, item.first, prefix + "key", describe(item.first), "a name");
    const std::string& name = item.first.Scalar();
    const std::string where = place.at(item.first, "");
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == name; });
    if (key == keys.end()) {
      throw_bad_input(
          fmt::format("{}unknown key '{}{}'{}", where, prefix, name.substr(0, 80), suggestion(name, names)));
    }
    if (!given.insert(name).second) {
      throw_bad_input(fmt::format("{}duplicate key '{}{}', expected it once", where, prefix, name));
    }
    ConfigPlace here = place;
    here.null_line = item.first.Mark().line;
    key->read({here, item.second, prefix + name});
  }
  for (const Key& key : keys) {
    if (key.required && !given.contains(key.name)) {
      throw_bad_input(fmt::format("{}: {}{}: found nothing, expected {}", place.name, prefix, key.name, key.accepts));
    }
  }
}

Key section(const std::string& name, const std::function<std::vector<Key>()>& keys) {
  return {name, false, "a map of keys", [=](const Entry& entry) {
            if (!entry.node.IsMap()) {
              entry.refuse("a map of keys");
            }
            read_map(entry.node, name + ".", keys(), entry.place);
          }};
}

}  // namespace

Interconnect parse_interconnect(const std::string& yaml, const std::string& place, const std::string& name) {
  Interconnect out;
  out.name = name;
  bool has_ranks_per_node = false;
  std::vector<Key> keys = link_keys(out.link);
  keys.push_back(text("name", false, "a name", out.name));
  keys.push_back(text("source", true, "where the figures are from", out.source));
  keys.push_back(number("overhead_us", false, 0, kLongestMicroseconds, kMicrosecond, out.overhead));
  keys.push_back(number("multiplier", false, 1e-3, 1e3, 1, out.multiplier));
  keys.push_back(count("ranks", false, 2, [&](int ranks) { out.ranks = ranks; }));
  keys.push_back(count("ranks_per_node", false, 2, [&](int ranks) {
    out.ranks_per_node = ranks;
    has_ranks_per_node = true;
  }));
  keys.push_back(section("node", [&] { return link_keys(out.node.emplace()); }));
  keys.push_back(section("jitter", [&] {
    return std::vector<Key>{number("sigma", false, 0, 2, 1, out.jitter.sigma),
                            number("tail_probability", false, 0, 1, 1, out.jitter.tail_probability),
                            number("tail_mean_us", false, 0, kLongestMicroseconds, kMicrosecond, out.jitter.tail_mean)};
  }));
  read_map(read_yaml_map(yaml, place), "", keys, {.name = place, .directory = {}});
  if (out.node.has_value() != has_ranks_per_node) {
    throw_bad_input(fmt::format("{}: {}", place,
                                has_ranks_per_node
                                    ? "node: found nothing beside ranks_per_node, expected the link inside a node"
                                    : "ranks_per_node: found nothing beside node, expected how many ranks a node has"));
  }
  if (out.jitter.tail_probability > 0 && out.jitter.tail_mean == 0) {
    throw_bad_input(fmt::format(
        "{}: jitter.tail_mean_us: found nothing beside tail_probability, expected how long a delay is", place));
  }
  if (out.name == kNativeInterconnect) {
    throw_bad_input(fmt::format("{}: name: found '{}', expected a name of its own", place, out.name));
  }
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
