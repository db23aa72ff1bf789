#include "runtime/typical_hardware.h"

#include <algorithm>
#include <limits>

#include "runtime/rows_cost.h"

namespace specdec {

Hardware typical_hardware(std::string_view backend, Isa isa, int ranks, int threads, std::int64_t rows) {
  constexpr double kCore = 15e9;
  constexpr int kMostThreads = 8;  // more of them find the memory busy
  constexpr double kGpu = 2e12;
  Hardware hardware{.name = "typical",
                    .ranks = ranks,
                    .memory = {.rate = backend == "cuda" ? kGpu : kCore * std::min(threads, kMostThreads)}};
  for (std::int64_t row = 1; row <= rows; ++row) {
    hardware.memory.rows_cost.push_back(typical_rows_cost(backend, isa, row));
  }
  hardware.interconnect.link.bandwidth = std::numeric_limits<double>::infinity();
  return hardware;
}

}  // namespace specdec
