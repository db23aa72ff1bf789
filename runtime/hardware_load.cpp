#include "runtime/hardware_load.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <string_view>
#include <utility>

#include "backend/error.h"
#include "runtime/config_prompts.h"
#include "runtime/file_keys.h"
#include "runtime/interconnect_load.h"
#include "runtime/paths.h"
#include "runtime/units.h"

namespace specdec {
namespace {

using file_key::number;
using file_key::required;
using file_key::text;

constexpr double kTera = 1e12;
constexpr double kLongest = 1e6;  // us

struct Read {
  Hardware hardware;
  std::string interconnect;
};

FileKey rows_cost(const std::string& name, std::vector<double>& into) {
  constexpr const char* kAccepts = "a list of numbers from 0.01, the first of them 1";
  return file_key::list<double>(name, kAccepts, into, [name, &into](const YAML::Node& node, const YamlPlace& place) {
    return read_number(place, node, name, kAccepts,
                       [first = into.empty()](double v) { return first ? v == 1 : v >= 0.01 && v <= 1e6; });
  });
}

std::vector<FileKey> keys_of(Read& out) {
  Hardware& hardware = out.hardware;
  return {
      text("name", "a name", hardware.name),
      required(text("source", "where the figures are from", hardware.source)),
      required(file_key::integer("ranks", 1, kMostDescribedRanks, hardware.ranks)),
      number("memory_GB", 1e-3, 1e6, kGiga, hardware.memory_bytes),
      required(number("read_GBps", 1e-3, 1e6, kGiga, hardware.memory.rate)),
      number("keys_GBps", 1e-3, 1e6, kGiga, hardware.memory.keys_rate),
      number("node_read_GBps", 1e-3, 1e7, kGiga, hardware.node_read_rate),
      file_key::integer("ranks_per_node", 1, kMostDescribedRanks, hardware.ranks_per_node),
      number("tflops", 1e-6, 1e6, kTera, hardware.operations_rate),
      number("attention_gflops", 1e-3, 1e9, kGiga, hardware.attention_rate),
      rows_cost("rows_cost", hardware.memory.rows_cost),
      required(number("cache.MB", 1e-3, 1e6, kMega, hardware.cached_bytes)),
      required(number("cache.read_GBps", 1e-3, 1e6, kGiga, hardware.cache.rate)),
      rows_cost("cache.rows_cost", hardware.cache.rows_cost),
      number("cache.own_MB", 1e-3, 1e6, kMega, hardware.own_cache_bytes),
      number("cache.own_GBps", 1e-3, 1e6, kGiga, hardware.own_cache_rate),
      number("cache.own_share", 0, 1, 1, hardware.own_cache_share),
      number("cache.refill_GBps", 1e-3, 1e6, kGiga, hardware.refill_rate),
      number("layer_us", 0, kLongest, kMicro, hardware.layer_seconds),
      number("pass_us", 0, kLongest, kMicro, hardware.pass_seconds),
      number("drafted_us", 0, kLongest, kMicro, hardware.drafted_seconds),
      number("accepted_us", 0, kLongest, kMicro, hardware.accepted_seconds),
      number("loop_us", 0, kLongest, kMicro, hardware.loop_seconds),
      number("cache.cold_drafted_us_per_MB", 0, kLongest, kMicro / kMega, hardware.cold_drafted_seconds),
      number("cache.cold_loop_us", 0, kLongest, kMicro, hardware.cold_loop_seconds),
      number("cache.cold_layer_us", 0, kLongest, kMicro, hardware.cold_layer_seconds),
      number("cache.displaced_us_per_MB", 0, kLongest, kMicro / kMega, hardware.displaced_seconds),
      number("cache_bytes", 1, 4, 1, hardware.cache_bytes),
      number("payload_bytes", 1, 4, 1, hardware.payload_bytes),
      number("jitter.sigma", 0, 2, 1, hardware.disturbance.compute.sigma),
      number("jitter.tail_probability", 0, 1, 1, hardware.disturbance.compute.tail_probability),
      number("jitter.tail_mean_us", 0, kLongest, kMicro, hardware.disturbance.compute.tail_mean),
      required(file_key::integer("stragglers.ranks", 1, kMostDescribedRanks, hardware.disturbance.stragglers)),
      required(number("stragglers.factor", 1, 1e3, 1, hardware.disturbance.straggler_factor)),
      text("interconnect", "the name of an interconnect or of its file", out.interconnect),
  };
}

}  // namespace

Hardware parse_hardware(const std::string& yaml, const std::string& place, const std::string& name,
                        const std::filesystem::path& directory) {
  Read out;
  out.hardware.name = name;
  const GivenKeys given = read_file_keys(yaml, place, keys_of(out));
  if (!given.contains("tflops") && !given.contains("rows_cost")) {
    throw_bad_input(
        fmt::format("{}: tflops: found neither it nor rows_cost, expected one: what more rows cost", place));
  }
  if (given.contains("ranks_per_node") && !given.contains("node_read_GBps")) {
    throw_bad_input(fmt::format(
        "{}: node_read_GBps: found nothing beside ranks_per_node, expected what a node's ranks read together", place));
  }
  constexpr std::string_view kOwnCache[] = {"cache.own_MB", "cache.own_GBps", "cache.own_share"};
  for (const auto& [key, other] : {std::pair(kOwnCache[0], kOwnCache[1]), std::pair(kOwnCache[1], kOwnCache[0]),
                                   std::pair(kOwnCache[0], kOwnCache[2])}) {
    if (given.contains(other) && !given.contains(key)) {
      throw_bad_input(fmt::format(
          "{}: {}: found nothing beside {}, expected both: what a rank's own cache has, and how fast it is read", place,
          key, other));
    }
  }
  if (out.hardware.ranks > 1 && out.interconnect.empty()) {
    throw_bad_input(fmt::format("{}: interconnect: found nothing beside ranks: {}, expected how they meet", place,
                                out.hardware.ranks));
  }
  if (!out.interconnect.empty()) {
    out.hardware.interconnect = load_interconnect(out.interconnect, place + ": interconnect", directory);
  }
  return out.hardware;
}

Hardware load_hardware(const std::string& name, const std::string& place) {
  const std::filesystem::path file = find_hardware(name, place);
  return parse_hardware(read_named_file(file, place), fmt::format("{}: {}", place, file.string()), file.stem(),
                        file.parent_path());
}

}  // namespace specdec
