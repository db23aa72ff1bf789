#include "runtime/interconnect_load.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "backend/error.h"
#include "runtime/config_prompts.h"
#include "runtime/enum_names.h"
#include "runtime/file_keys.h"
#include "runtime/paths.h"
#include "runtime/units.h"

namespace specdec {
namespace {

constexpr double kLongestMicroseconds = 1e6;
constexpr int kFewestRanks = 2;

template <typename Into>
FileKey ranks(const std::string& name, Into& into) {
  return file_key::integer(name, kFewestRanks, kMostDescribedRanks, into);
}

FileKey algorithm(const std::string& name, LinkAlgorithm& into) {
  const std::vector<std::string> words = names_of(kLinkAlgorithms);
  return {name, word_list(words), [=, &into](const YAML::Node& node, const YamlPlace& place) {
            into = kLinkAlgorithms.at(read_word(place, node, name, words));
          }};
}

void add_link(std::vector<FileKey>& keys, const std::string& section, Link& link) {
  keys.push_back(file_key::required(algorithm(section + "algorithm", link.algorithm)));
  keys.push_back(
      file_key::required(file_key::number(section + "latency_us", 0, kLongestMicroseconds, kMicro, link.latency)));
  keys.push_back(file_key::required(file_key::number(section + "bandwidth_GBps", 1e-3, 1e6, kGiga, link.bandwidth)));
}

/// The table of keys, which set `out` and `node`.
std::vector<FileKey> keys_of(Interconnect& out, Link& node) {
  std::vector<FileKey> keys;
  keys.push_back(file_key::text("name", "a name", out.name));
  keys.push_back(file_key::required(file_key::text("source", "where the figures are from", out.source)));
  add_link(keys, "", out.link);
  keys.push_back(file_key::number("overhead_us", 0, kLongestMicroseconds, kMicro, out.overhead));
  keys.push_back(file_key::number("multiplier", 1e-3, 1e3, 1, out.multiplier));
  keys.push_back(ranks("ranks", out.ranks));
  keys.push_back(ranks("ranks_per_node", out.ranks_per_node));
  add_link(keys, "node.", node);
  keys.push_back(file_key::number("jitter.sigma", 0, 2, 1, out.jitter.sigma));
  keys.push_back(file_key::number("jitter.tail_probability", 0, 1, 1, out.jitter.tail_probability));
  keys.push_back(file_key::number("jitter.tail_mean_us", 0, kLongestMicroseconds, kMicro, out.jitter.tail_mean));
  return keys;
}

}  // namespace

Interconnect parse_interconnect(const std::string& yaml, const std::string& place, const std::string& name) {
  Interconnect out;
  Link node;
  out.name = name;
  const GivenKeys given = read_file_keys(yaml, place, keys_of(out, node));
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
