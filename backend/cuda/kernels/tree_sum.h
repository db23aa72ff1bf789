#pragma once

#include "backend/cpu/matmul_kernel.h"
#include "backend/cuda/kernels/device.h"

namespace specdec::cuda {

/// Sums of slices in order in, the sum of their tree out.
class TreeSum {
 public:
  SPECDEC_DEVICE void add(float sum) {
    // Counting in binary adds equal subtrees as soon as both are there.
    const int node = trailing_ones(slices_);
    for (int n = 0; n < node; ++n) {
      sum = level_[n] + sum;
    }
    level_[node] = sum;
    total_ = sum;
    ++slices_;
  }
  /// Of all slices so far.
  SPECDEC_DEVICE float total() const {
    float sum = total_;
    // What is left are the odd ones that passed up.
    int node = trailing_ones(slices_ - 1);
    for (int count = (slices_ - 1) >> node; count != 0; count >>= 1, ++node) {
      if ((count & 1) != 0) {
        sum = level_[node] + sum;
      }
    }
    return sum;
  }

 private:
  static constexpr int kLevels = 7;
  static_assert(kMaxSlices <= 1 << (kLevels - 1));

  SPECDEC_DEVICE static int trailing_ones(int count) {
    int ones = 0;
    for (; (count & 1) != 0; count >>= 1) {
      ++ones;
    }
    return ones;
  }

  float level_[kLevels] = {};
  float total_ = 0;
  int slices_ = 0;
};

}  // namespace specdec::cuda
