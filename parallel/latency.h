#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/communicator.h"

namespace specdec {

/// Seconds of many runs of one operation. A percentile is a time that did occur: the smallest one that so many per cent
/// of the runs did not exceed.
struct LatencySummary {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
  double mean = 0;
};

/// All zero when there are no samples.
LatencySummary summarise(std::vector<double> seconds);

/// What a rank does per second of its payload, bytes / seconds; 0 for no time.
double algorithm_bandwidth(std::size_t bytes, double seconds);
/// The same times 2 (n - 1) / n, what every rank must at least send of an all-reduce: comparable with a wire's bandwidth
/// whatever the number of ranks (nccl-tests, doc/PERFORMANCE.md).
double bus_bandwidth(std::size_t bytes, double seconds, int ranks);

/// Element by element the largest of all ranks' `mine`, which are equally many. Collective.
std::vector<double> maximum_over_ranks(Communicator& group, std::span<const double> mine);
std::int64_t maximum_over_ranks(Communicator& group, std::int64_t mine);
std::int64_t sum_over_ranks(Communicator& group, std::int64_t mine);

}  // namespace specdec
