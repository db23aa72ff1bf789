#pragma once

#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/dtype.h"

/// The sum over ranks in the one binary tree (parallel/tree.h): what a communicator on a device adds with.
namespace specdec::cuda {

/// Most ranks that are summed on a device.
inline constexpr int kMostSummedRanks = 64;
inline constexpr int kSumThreads = 256;

SPECDEC_DEVICE inline float add_over_ranks(float lower, float upper) { return lower + upper; }
SPECDEC_DEVICE inline BF16 add_over_ranks(BF16 lower, BF16 upper) {
  return {float_to_bf16(bf16_to_float(lower.bits) + bf16_to_float(upper.bits))};
}

/// The tree over the places [first, first + kPlaces) of which those below `ranks` are there: the left operand is always the lower place, and a
/// subtree that is missing is left out. leaf(r) is what rank r gives.
template <int kPlaces, class Leaf>
SPECDEC_DEVICE auto sum_of_places(const Leaf& leaf, int first, int ranks) {
  if constexpr (kPlaces == 1) {
    return leaf(first);
  } else {
    constexpr int kHalf = kPlaces / 2;
    auto sum = sum_of_places<kHalf>(leaf, first, ranks);
    if (first + kHalf < ranks) {
      sum = add_over_ranks(sum, sum_of_places<kHalf>(leaf, first + kHalf, ranks));
    }
    return sum;
  }
}

/// One element of every rank's payload, where they lie one after another.
template <typename T>
struct GatheredLeaf {
  const T* at;
  std::int64_t count;
  SPECDEC_DEVICE T operator()(int rank) const { return at[rank * count]; }
};

/// out[i] = sum over ranks r of gathered[r * count + i], for ranks <= kPlaces, a power of two. A thread an element; `out` does not overlap `gathered`.
template <class Gpu, typename T, int kPlaces>
SPECDEC_DEVICE void sum_ranks(Gpu& gpu, const T* gathered, int ranks, std::int64_t count, T* out) {
  const std::int64_t i = gpu.block_x() * gpu.threads() + gpu.thread();
  if (i < count) {
    out[i] = sum_of_places<kPlaces>(GatheredLeaf<T>{gathered + i, count}, 0, ranks);
  }
}

}  // namespace specdec::cuda
