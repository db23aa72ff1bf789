#pragma once

#include "backend/cpu/matmul_kernel.h"
#include "backend/cuda/kernels/device.h"
#include "backend/cuda/tensor_layout.h"

namespace specdec::cuda {

/// Leaves in order in, the sum of the tree out: those of a slice meet neighbours first, then the slices.
class TreeSum {
 public:
  SPECDEC_DEVICE void add(float leaf, bool last_of_slice) {
    float sum = climb(inner_, leaves_, leaf);
    ++leaves_;
    if (last_of_slice) {
      // The leaves of a slice are a power of two: its tree is complete.
      total_ = climb(outer_, slices_, sum);
      ++slices_;
      leaves_ = 0;
    }
  }
  /// Of all slices so far.
  SPECDEC_DEVICE float total() const {
    float sum = total_;
    // What is left are the odd ones that passed up.
    int node = trailing_ones(slices_ - 1);
    for (int count = (slices_ - 1) >> node; count != 0; count >>= 1, ++node) {
      if ((count & 1) != 0) {
        sum = outer_[node] + sum;
      }
    }
    return sum;
  }

 private:
  static constexpr int kInnerLevels = 5;
  static constexpr int kOuterLevels = 7;
  static_assert(TensorLayout::kMaxLeaves <= 1 << (kInnerLevels - 1) && kMaxSlices <= 1 << (kOuterLevels - 1));

  /// Counting in binary adds equal subtrees as soon as both are there.
  template <int kLevels>
  SPECDEC_DEVICE static float climb(float (&level)[kLevels], int before, float sum) {
    const int node = trailing_ones(before);
    for (int n = 0; n < node; ++n) {
      sum = level[n] + sum;
    }
    level[node] = sum;
    return sum;
  }
  SPECDEC_DEVICE static int trailing_ones(int count) {
    int ones = 0;
    for (; (count & 1) != 0; count >>= 1) {
      ++ones;
    }
    return ones;
  }

  float inner_[kInnerLevels] = {};
  float outer_[kOuterLevels] = {};
  float total_ = 0;
  int leaves_ = 0;
  int slices_ = 0;
};

}  // namespace specdec::cuda
