#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/lane_sum.h"
#include "backend/cuda/kernels/sampling_kernels.h"
#include "backend/tensor.h"

/// Where top-k and top-p cut a row, with the bits of backend/selection.h: the same radix selection, of three digits of ten bits. Its buckets do not depend on
/// the order of additions: numbers are integers, and weights of one bucket have one exponent, so that their sum is the integer sum of their
/// significands. What is added from bucket to bucket is added in the host's order.
namespace specdec::cuda {

/// What is kept of a row, and the sum of that. Weights above `value` are kept, and those equal to it up to the index `last`.
struct RowCut {
  float value = 0;
  std::int32_t last = std::numeric_limits<std::int32_t>::max();
  float total = 0;

  constexpr bool keeps(float weight, std::int64_t index) const {
    return weight > value || (weight == value && index <= last);
  }
};

struct Truncation {
  static constexpr bool kOf1024Threads = true;  ///< of a kernel that would take 64 registers or more by itself

  std::int32_t top_k = 0;  ///< 0: off
  float top_p = 1;         ///< 1: off
};

/// The block's memory in a selection.
struct Buckets {
  static constexpr int kBits = 10;
  static constexpr int kCount = 1 << kBits;

  std::uint32_t low[kCount];   ///< sum of numbers, or of the lower halves of significands
  std::uint32_t high[kCount];  ///< of the upper halves
  double measure[kCount];      ///< what the weights of a bucket measure together
  double taken;                ///< by the buckets above the digit
  std::int32_t digit;          ///< of the bucket that reaches the goal; -1: there is none
  std::int32_t nth;
};

inline constexpr std::size_t kCutSharedBytes = sizeof(Buckets) > sizeof(LaneSumMemory) ? sizeof(Buckets)
                                                                                       : sizeof(LaneSumMemory);

/// Each weight counts 1.
struct Number {
  SPECDEC_DEVICE static void add(auto& gpu, std::uint32_t /*bits*/, std::uint32_t* low, std::uint32_t* /*high*/) {
    gpu.atomic_add(low, 1U);
  }
  static constexpr double measure(std::uint64_t sum, std::uint32_t /*bits*/) { return static_cast<double>(sum); }
  static constexpr std::uint64_t unit(std::uint32_t /*bits*/) { return 1; }
};

/// Each weight counts what it weighs.
struct Mass {
  static constexpr int kHalf = 12;

  SPECDEC_DEVICE static void add(auto& gpu, std::uint32_t bits, std::uint32_t* low, std::uint32_t* high) {
    const auto significand = static_cast<std::uint32_t>(unit(bits));
    gpu.atomic_add(low, significand & ((1U << kHalf) - 1U));
    gpu.atomic_add(high, significand >> kHalf);
  }
  /// Exact: kMostSampledTokens significands sum to less than 2^53, and the power of two is a normal double.
  static constexpr double measure(std::uint64_t sum, std::uint32_t bits) {
    const std::uint64_t exponent = (bits >> 23) + 1023 - 150;
    return static_cast<double>(sum) * std::bit_cast<double>(exponent << 52);
  }
  static constexpr std::uint64_t unit(std::uint32_t bits) { return (bits & 0x7fffffU) | 0x800000U; }
};

/// One thread: walks down the buckets until what they measure together reaches the goal, or to the last that is not empty.
SPECDEC_DEVICE inline void walk_down(Buckets& buckets, double goal) {
  constexpr int kStep = 16;  // read at a time, so that only additions wait for one another
  double taken = buckets.taken;
  double at_digit = 0;
  int digit = -1;
  bool reached = false;
  for (int first = Buckets::kCount - 1; first >= 0 && !reached; first -= kStep) {
    double measure[kStep];
    SPECDEC_UNROLL
    for (int i = 0; i < kStep; ++i) {
      measure[i] = buckets.measure[first - i];
    }
    SPECDEC_UNROLL
    for (int i = 0; i < kStep; ++i) {
      if (!reached && measure[i] > 0.0) {
        taken += at_digit;
        at_digit = measure[i];
        digit = first - i;
        reached = !(taken + at_digit < goal);
      }
    }
  }
  buckets.taken = taken;
  buckets.digit = digit;
}

/// The index of entry number `wanted`, counted from 1, of those that `counts`.
template <class Gpu, class Counts>
SPECDEC_DEVICE std::int32_t find_nth(Gpu& gpu, Buckets& buckets, std::int64_t cols, std::uint32_t wanted,
                                     const Counts& counts) {
  const std::int64_t share = (cols + gpu.threads() - 1) / gpu.threads();
  const std::int64_t begin = gpu.thread() * share;
  std::uint32_t mine = 0;
  for (std::int64_t i = begin; i < begin + share && i < cols; ++i) {
    mine += counts(i) ? 1U : 0U;
  }
  buckets.low[gpu.thread()] = mine;
  gpu.sync();
  if (gpu.thread() == 0) {
    int thread = 0;
    for (; wanted > buckets.low[thread]; ++thread) {
      wanted -= buckets.low[thread];
    }
    std::int64_t i = thread * share;
    for (;; ++i) {
      wanted -= counts(i) ? 1U : 0U;
      if (wanted == 0) {
        break;
      }
    }
    buckets.nth = static_cast<std::int32_t>(i);
  }
  gpu.sync();
  const std::int32_t nth = buckets.nth;
  gpu.sync();
  return nth;
}

/// Of what `before` keeps and is not below `bound`, the largest that together reach the goal.
template <class Measure, class Gpu>
SPECDEC_DEVICE RowCut select(Gpu& gpu, const float* row, std::int64_t cols, const RowCut& before, float bound,
                             double goal) {
  auto& buckets = *reinterpret_cast<Buckets*>(gpu.shared());
  if (gpu.thread() == 0) {
    buckets.taken = 0;
  }
  std::uint32_t prefix = 0;
  std::uint64_t sum = 0;
  for (int shift = 2 * Buckets::kBits; shift >= 0; shift -= Buckets::kBits) {
    for (int i = gpu.thread(); i < Buckets::kCount; i += gpu.threads()) {
      buckets.low[i] = 0;
      buckets.high[i] = 0;
    }
    gpu.sync();
    constexpr int kAhead = 16;  // entries that a thread reads at a time
    const int thread = gpu.thread();
    const int threads = gpu.threads();
    in_batches<kAhead>(
        share_of(cols, thread, threads), [&](int i) { return row[thread + i * threads]; },
        [&](int i, float weight) {
          const auto bits = std::bit_cast<std::uint32_t>(weight);
          if (weight >= bound && before.keeps(weight, thread + i * threads) &&
              bits >> (shift + Buckets::kBits) == prefix) {
            const std::uint32_t at = (bits >> shift) & (Buckets::kCount - 1);
            Measure::add(gpu, bits, &buckets.low[at], &buckets.high[at]);
          }
        });
    gpu.sync();
    const auto sum_of = [&](std::uint32_t i) {
      return (std::uint64_t{buckets.high[i]} << Mass::kHalf) + buckets.low[i];
    };
    for (std::uint32_t i = gpu.thread(); i < Buckets::kCount; i += gpu.threads()) {
      buckets.measure[i] = Measure::measure(sum_of(i), (prefix << Buckets::kBits | i) << shift);
    }
    gpu.sync();
    if (gpu.thread() == 0) {
      walk_down(buckets, goal);
    }
    gpu.sync();
    const std::int32_t digit = buckets.digit;
    sum = digit < 0 ? 0 : sum_of(digit);
    gpu.sync();
    if (digit < 0) {
      return before;  // a row of zeros, as of a fault
    }
    prefix = prefix << Buckets::kBits | static_cast<std::uint32_t>(digit);
  }
  // What is left has one value.
  const auto value = std::bit_cast<float>(prefix);
  const std::uint64_t unit = Measure::unit(prefix);
  const std::uint64_t count = sum / unit;
  const auto equal = static_cast<double>(count);
  const double missing = std::ceil((goal - buckets.taken) / Measure::measure(unit, prefix));
  RowCut cut{.value = value};
  if (missing >= equal) {
    cut.last = value == before.value ? before.last : cut.last;
  } else {
    const auto wanted = static_cast<std::uint32_t>(missing < 1.0 ? 1.0 : missing);
    cut.last =
        find_nth(gpu, buckets, cols, wanted, [&](std::int64_t i) { return row[i] == value && before.keeps(value, i); });
  }
  gpu.sync();
  return cut;
}

/// Block y finds cuts[y] of row y.
template <class Gpu>
SPECDEC_DEVICE void find_cuts(Gpu& gpu, ConstRows weights, Truncation truncation, RowCut* cuts) {
  constexpr float kLeast = std::numeric_limits<float>::min();  // Subnormal weights are zeros.
  const float* row = weights.row(gpu.block_y());
  RowCut cut;
  const auto kept = [&](std::int64_t i) { return cut.keeps(row[i], i) ? row[i] : 0.0F; };
  if (truncation.top_k > 0 && truncation.top_k < weights.cols) {
    cut = select<Number>(gpu, row, weights.cols, cut, kLeast, static_cast<double>(truncation.top_k));
  }
  if (truncation.top_p < 1.0F) {
    const auto share = static_cast<double>(truncation.top_p);
    const double total = lane_sum(gpu, weights.cols, kept);
    const auto bound = static_cast<float>(0.5 * (1.0 - share) * total / static_cast<double>(weights.cols));
    cut = select<Mass>(gpu, row, weights.cols, cut, bound < kLeast ? kLeast : bound, share * total);
  }
  cut.total = static_cast<float>(lane_sum(gpu, weights.cols, kept));
  if (gpu.thread() == 0) {
    cuts[gpu.block_y()] = cut;
  }
}

/// What is kept, divided by its sum; block (x, y) has part x of row y.
template <class Gpu>
SPECDEC_DEVICE void normalise(Gpu& gpu, Rows weights, const RowCut* cuts) {
  const Range own = own_part(gpu, weights.cols);
  const RowCut cut = cuts[gpu.block_y()];
  for (std::int64_t i = own.begin + gpu.thread(); i < own.end; i += gpu.threads()) {
    float& weight = weights.row(gpu.block_y())[i];
    weight = cut.keeps(weight, i) && cut.total > 0.0F ? weight / cut.total : 0.0F;
  }
}

}  // namespace specdec::cuda
