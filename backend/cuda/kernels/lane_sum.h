#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/device.h"

namespace specdec::cuda {

inline constexpr int kSumTile = 2048;
inline constexpr std::size_t kLaneSumBytes = 2 * kSumTile * sizeof(float) + sizeof(double);

/// sum_of(x [0, count)) (backend/vector_math.h) where x(i) >= 0: entry i is added as a double in lane i mod 16, in order, then the lanes in their tree.
/// Every thread of the block, of more than one warp, gets it. The first warp's lanes add what the other warps bring to `shared` [kLaneSumBytes], a tile ahead.
template <class Gpu, class Entry>
SPECDEC_DEVICE double lane_sum(Gpu& gpu, std::int64_t count, const Entry& x, std::byte* shared) {
  constexpr int kAhead = 8;  // entries of a lane that are read at a time, so that only additions wait for one another
  constexpr int kStep = kAhead * kRowLanes;
  auto* const tiles = reinterpret_cast<float*>(shared);
  auto* const result = reinterpret_cast<double*>(tiles + 2 * kSumTile);
  double sum = 0;
  float* tile = tiles;
  for (std::int64_t first = 0; first < count; first += kSumTile) {
    const std::int64_t left = count - first;
    const int here = left < kSumTile ? static_cast<int>((left + kStep - 1) / kStep * kStep) : kSumTile;
    for (int i = gpu.thread() - kWarp; gpu.thread() >= kWarp && i < here; i += gpu.threads() - kWarp) {
      tile[i] = i < left ? x(first + i) : 0.0F;  // a zero changes no sum
    }
    gpu.sync();  // the other tile, too, has been added by now
    for (int i = gpu.thread(); gpu.thread() < kRowLanes && i < here; i += kStep) {
      float entry[kAhead];
      SPECDEC_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        entry[j] = tile[i + j * kRowLanes];
      }
      SPECDEC_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        sum += static_cast<double>(entry[j]);
      }
    }
    tile = tile == tiles ? tiles + kSumTile : tiles;
  }
  const double total = tree_sum(gpu, sum);
  if (gpu.thread() == 0) {
    *result = total;
  }
  gpu.sync();
  const double all = *result;
  gpu.sync();
  return all;
}

}  // namespace specdec::cuda
