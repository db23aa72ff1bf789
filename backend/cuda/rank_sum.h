#pragma once

#include <cstdint>
#include <utility>

#include "backend/cuda/grid.h"
#include "backend/cuda/kernels/rank_sum_kernel.h"
#include "backend/error.h"

namespace specdec::cuda {

/// Calls f.template operator()<kPlaces>() with the smallest power of two that is not less than `ranks`: 1 to kMost.
template <int kMost, int kPlaces = 1, class F>
void with_places(int ranks, F&& f) {
  check(ranks >= 1 && ranks <= kMost, "a sum over too many ranks, or none");
  if constexpr (kPlaces < kMost) {
    if (ranks > kPlaces) {
      return with_places<kMost, 2 * kPlaces>(ranks, std::forward<F>(f));
    }
  }
  std::forward<F>(f).template operator()<kPlaces>();
}

/// out [count] = the tree over ranks of gathered [ranks, count], as a launch on a `Device` (gpu_backend.h).
template <class Device, typename T>
void launch_rank_sum(Device& device, const T* gathered, int ranks, std::int64_t count, T* out) {
  const Grid grid{.x = (count + kSumThreads - 1) / kSumThreads, .threads = kSumThreads};
  with_places<kMostSummedRanks>(ranks, [&]<int kPlaces>() {
    device.template launch<&sum_ranks<typename Device::Gpu, T, kPlaces>>(grid, gathered, ranks, count, out);
  });
}

}  // namespace specdec::cuda
