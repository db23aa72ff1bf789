#include "parallel/interconnect.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "backend/philox.h"

namespace specdec {
namespace {

/// Sequential messages on the way of one collective, and the bytes that one rank sends or receives one after another.
struct Cost {
  double steps = 0;
  double bytes = 0;

  double on(const Link& link) const { return steps * link.latency + bytes / link.bandwidth; }
};

double levels(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

Cost all_reduce_cost(LinkAlgorithm algorithm, double bytes, int ranks) {
  const double others = ranks - 1;
  switch (algorithm) {
    case LinkAlgorithm::kRing:
      return {2 * others, 2 * others / ranks * bytes};
    case LinkAlgorithm::kTree:
      return {2 * levels(ranks), 2 * bytes};
    case LinkAlgorithm::kOneShot:
      return {1, others * bytes};
  }
  return {};
}

/// Half an all-reduce: a reduce-scatter of `bytes`, or an all-gather to `bytes` in all.
Cost scatter_cost(LinkAlgorithm algorithm, double bytes, int ranks) {
  const double others = ranks - 1;
  const double moved = others / ranks * bytes;
  switch (algorithm) {
    case LinkAlgorithm::kRing:
      return {others, moved};
    case LinkAlgorithm::kTree:
      return {levels(ranks), moved};
    case LinkAlgorithm::kOneShot:
      return {1, moved};
  }
  return {};
}

Cost broadcast_cost(LinkAlgorithm algorithm, double bytes, int ranks) {
  const double others = ranks - 1;
  switch (algorithm) {
    case LinkAlgorithm::kRing:
      return {others, bytes};  // pipelined
    case LinkAlgorithm::kTree:
      return {levels(ranks), bytes};
    case LinkAlgorithm::kOneShot:
      return {1, others * bytes};
  }
  return {};
}

/// The ranks as nodes of so many each; the last one may be smaller.
struct Nodes {
  int inside;
  int count;
  Link link;  // inside a node of several ranks
};

Nodes nodes_of(const Interconnect& interconnect, int group) {
  const int ranks = interconnect.ranks.value_or(group);
  const int inside = interconnect.node ? std::min(ranks, interconnect.ranks_per_node) : 1;
  return {inside, (ranks + inside - 1) / inside, interconnect.node.value_or(Link{})};
}

}  // namespace

std::string_view name_of(LinkAlgorithm algorithm) {
  switch (algorithm) {
    case LinkAlgorithm::kRing:
      return "ring";
    case LinkAlgorithm::kTree:
      return "tree";
    case LinkAlgorithm::kOneShot:
      return "one-shot";
  }
  return "?";
}

double Interconnect::all_reduce(std::size_t bytes, int group) const {
  if (group == 1) {
    return 0;
  }
  const auto payload = static_cast<double>(bytes);
  const Nodes nodes = nodes_of(*this, group);
  double seconds = 0;
  if (nodes.inside > 1) {
    seconds += nodes.count == 1 ? all_reduce_cost(nodes.link.algorithm, payload, nodes.inside).on(nodes.link)
                                : 2 * scatter_cost(nodes.link.algorithm, payload, nodes.inside).on(nodes.link);
  }
  if (nodes.count > 1) {
    seconds += all_reduce_cost(link.algorithm, payload / nodes.inside, nodes.count).on(link);
  }
  return multiplier * (overhead + seconds);
}

double Interconnect::all_gather(std::size_t bytes, int group) const {
  if (group == 1) {
    return 0;
  }
  const auto whole = static_cast<double>(bytes) * group;
  const Nodes nodes = nodes_of(*this, group);
  double seconds = 0;
  if (nodes.count > 1) {
    // Each rank gathers its column between the nodes, then the columns are gathered inside.
    seconds += scatter_cost(link.algorithm, whole / nodes.inside, nodes.count).on(link);
  }
  if (nodes.inside > 1) {
    seconds += scatter_cost(nodes.link.algorithm, whole, nodes.inside).on(nodes.link);
  }
  return multiplier * (overhead + seconds);
}

double Interconnect::gather(std::size_t bytes, int group) const { return all_gather(bytes, group); }

double Interconnect::broadcast(std::size_t bytes, int group) const {
  if (group == 1) {
    return 0;
  }
  const auto payload = static_cast<double>(bytes);
  const Nodes nodes = nodes_of(*this, group);
  double seconds = 0;
  if (nodes.count > 1) {
    seconds += broadcast_cost(link.algorithm, payload, nodes.count).on(link);
  }
  if (nodes.inside > 1) {
    seconds += broadcast_cost(nodes.link.algorithm, payload, nodes.inside).on(nodes.link);
  }
  return multiplier * (overhead + seconds);
}

double Interconnect::barrier(int group) const { return all_reduce(0, group); }

double Interconnect::with_jitter(double seconds, std::uint64_t seed, std::uint64_t number) const {
  if (seconds == 0 || (jitter.sigma == 0 && jitter.tail_probability == 0)) {
    return seconds;
  }
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  const std::array<std::uint32_t, 2> key = {low(seed), high(seed)};
  const auto first = philox4x32({low(number), high(number), 0, 0}, key);
  const auto second = philox4x32({low(number), high(number), 1, 0}, key);
  // Box and Muller; 1 - u is never 0.
  const double radius = std::sqrt(-2 * std::log(1 - uniform_of(first[0], first[1])));
  const double normal = radius * std::cos(2 * std::numbers::pi * uniform_of(first[2], first[3]));
  const bool delayed = uniform_of(second[0], second[1]) < jitter.tail_probability;
  const double delay = delayed ? -jitter.tail_mean * std::log(1 - uniform_of(second[2], second[3])) : 0;
  return seconds * std::exp(jitter.sigma * normal) + delay;
}

}  // namespace specdec
