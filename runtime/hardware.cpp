#include "runtime/hardware.h"

#include <algorithm>

namespace specdec {

double Hardware::read_rate_of(int count) const {
  if (node_read_rate == 0) return read_rate;
  const int together = std::min(count, ranks_per_node == 0 ? count : ranks_per_node);
  return std::min(read_rate, node_read_rate / together);
}

}  // namespace specdec
