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

double Hardware::reading_seconds(double weights, double keys, std::int64_t rows, int count, WeightsIn in) const {
  if (in == WeightsIn::kCache) return (weights * cache.cost_of(rows) + keys) / cache.rate;
  const double alone = in == WeightsIn::kCacheOnce && refill_rate > 0 ? refill_rate : memory.rate;
  double shared = alone;
  if (node_read_rate > 0) {
    const int together = std::min(count, ranks_per_node == 0 ? count : ranks_per_node);
    shared = std::min(alone, node_read_rate / together);
  }
  if (in == WeightsIn::kCacheOnce) {
    // What more rows cost is hidden as far as the weights are waited for.
    return std::max((weights + keys) / shared, (weights * cache.cost_of(rows) + keys) / cache.rate);
  }
  // Others delay what is read, not what is done with it.
  return (weights * memory.cost_of(rows) + keys) / alone + (weights + keys) * (1 / shared - 1 / alone);
}

}  // namespace specdec
