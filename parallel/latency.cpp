#include "parallel/latency.h"

#include <algorithm>
#include <numeric>

namespace specdec {
namespace {

std::vector<std::int64_t> of_all_ranks(Communicator& group, std::int64_t mine) {
  std::vector<std::int64_t> all(group.size());
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
  return all;
}

}  // namespace

LatencySummary summarise(std::vector<double> seconds) {
  if (seconds.empty()) {
    return {};
  }
  std::ranges::sort(seconds);
  const auto at = [&](std::size_t percent) { return seconds[(seconds.size() * percent + 99) / 100 - 1]; };
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  return {.p50 = at(50),
          .p90 = at(90),
          .p99 = at(99),
          .max = seconds.back(),
          .mean = std::clamp(mean, seconds.front(), seconds.back())};  // rounding may have put it just outside
}

double algorithm_bandwidth(std::size_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

double bus_bandwidth(std::size_t bytes, double seconds, int ranks) {
  return algorithm_bandwidth(bytes, seconds) * 2 * (ranks - 1) / ranks;
}

std::vector<double> maximum_over_ranks(Communicator& group, std::span<const double> mine) {
  std::vector<double> all(mine.size() * group.size());
  group.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), Stream{});
  std::vector<double> largest(mine.begin(), mine.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& element = largest[i % mine.size()];
    element = std::max(element, all[i]);
  }
  return largest;
}

std::int64_t maximum_over_ranks(Communicator& group, std::int64_t mine) {
  return std::ranges::max(of_all_ranks(group, mine));
}

std::int64_t sum_over_ranks(Communicator& group, std::int64_t mine) {
  const std::vector<std::int64_t> all = of_all_ranks(group, mine);
  return std::accumulate(all.begin(), all.end(), std::int64_t{0});
}

}  // namespace specdec
