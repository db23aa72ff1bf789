#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// That a description of an interconnect or of a machine may be of.
inline constexpr int kMostDescribedRanks = 1 << 20;

/// How messages of one collective follow each other. n ranks, B bytes of payload, a = latency of a step, b = bandwidth of
/// a rank in one direction.
enum class LinkAlgorithm : std::uint8_t {
  kRing,     ///< all-reduce 2 (n - 1) a + 2 (n - 1) / n B / b: the least bytes, the most steps
  kTree,     ///< all-reduce 2 ceil(log2 n) a + 2 B / b: up and down a pipelined tree
  kOneShot,  ///< all-reduce a + (n - 1) B / b: every rank sends everything to every other one at once
};

std::string_view name_of(LinkAlgorithm algorithm);

/// The wires between ranks of one kind.
struct Link {
  LinkAlgorithm algorithm = LinkAlgorithm::kTree;
  double latency = 0;    ///< seconds a step, software included
  double bandwidth = 0;  ///< bytes a second of one rank in one direction
};

/// How a collective's time varies: a log-normal factor around the median, and now and then a delay.
struct Jitter {
  double sigma = 0;             ///< of the logarithm of the factor
  double tail_probability = 0;  ///< that a collective is delayed
  double tail_mean = 0;         ///< seconds; the delay is exponential
};

/// A described interconnect (configs/interconnects/): what a collective takes on a machine that is not here, from the
/// moment when its last rank has come. The usual alpha-beta model (Thakur, Rabenseifner, Gropp 2005).
struct Interconnect {
  std::string name;
  std::string source;        ///< where its figures are from
  Link link;                 ///< between nodes; between all ranks when `node` is empty
  std::optional<Link> node;  ///< inside a node of `ranks_per_node`
  int ranks_per_node = 1;    ///< with `node` alone
  std::optional<int> ranks;  ///< of the described machine: every group of two or more takes its time; none: the group's
  double overhead = 0;       ///< seconds a collective, whatever its size
  double multiplier = 1;     ///< calibration: measured over modelled
  Jitter jitter;

  /// Seconds, without jitter. `bytes`: of one rank's payload. With nodes an all-reduce is a reduce-scatter inside each
  /// node, an all-reduce of the n-th parts between the nodes, and an all-gather inside each node. `group`: its ranks;
  /// a group of one rank has nobody to wait for.
  double all_reduce(std::size_t bytes, int group) const;
  double all_gather(std::size_t bytes, int group) const;
  double gather(std::size_t bytes, int group) const;
  double broadcast(std::size_t bytes, int group) const;
  double barrier(int group) const;

  /// `seconds` as the `number`-th collective of a job with this seed takes them: the same on every rank.
  double with_jitter(double seconds, std::uint64_t seed, std::uint64_t number) const;
};

}  // namespace specdec
