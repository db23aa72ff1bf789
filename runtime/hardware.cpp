#include "runtime/hardware.h"

#include <algorithm>

namespace specdec {

double Reading::cost_of(std::int64_t rows) const {
  const auto known = static_cast<std::int64_t>(rows_cost.size());
  if (known == 0) return 1;
  if (rows <= known) return rows_cost[static_cast<std::size_t>(rows - 1)];
  const double last = known > 1 ? rows_cost[known - 1] - rows_cost[known - 2] : 0;
  return rows_cost.back() + last * static_cast<double>(rows - known);
}

double Reading::seconds(double weights, double keys, std::int64_t rows) const {
  return weights * cost_of(rows) / rate + keys / (keys_rate > 0 ? keys_rate : rate);
}

double Hardware::share_in_own_cache(double bytes) const {
  if (own_cache_rate == 0) return 0;
  const double fill = bytes / own_cache_bytes;
  if (fill <= kKeptWhole) return 1;
  if (fill >= kKeptNothing) return 0;
  return fill <= 1 ? 1 - (1 - own_cache_share) * (fill - kKeptWhole) / (1 - kKeptWhole)
                   : own_cache_share * (kKeptNothing - fill) / (kKeptNothing - 1);
}

double Hardware::reading_seconds(double weights, double keys, std::int64_t rows, int count, WeightsIn in,
                                 double in_own_cache) const {
  if (in == WeightsIn::kCache) {
    // What more rows cost is done with the weights once they are there.
    const double sooner = in_own_cache > 0 ? in_own_cache * (1 / cache.rate - 1 / own_cache_rate) : 0;
    return cache.seconds(weights, keys, rows) - (weights + keys) * sooner;
  }
  const double alone = in == WeightsIn::kCacheOnce && refill_rate > 0 ? refill_rate : memory.rate;
  double shared = alone;
  if (node_read_rate > 0) {
    const int together = std::min(count, ranks_per_node == 0 ? count : ranks_per_node);
    shared = std::min(alone, node_read_rate / together);
  }
  if (in == WeightsIn::kCacheOnce) {
    // What more rows cost is hidden as far as the weights are waited for.
    return std::max((weights + keys) / shared, cache.seconds(weights, keys, rows));
  }
  // Others delay what is read, not what is done with it.
  return memory.seconds(weights, keys, rows) + (weights + keys) * (1 / shared - 1 / alone);
}

}  // namespace specdec
