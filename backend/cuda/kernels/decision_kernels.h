#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/device.h"
#include "backend/elementary.h"

/// Statistics of vocabulary slices, with the bits of backend/cpu/logits_inl.h. One block a slice (x) of a row (y).
namespace specdec::cuda {

inline constexpr int kDecisionThreads = 1024;

struct Candidate {
  float value;
  std::int64_t index;
};

inline constexpr int kDecisionLoads = 8;
/// Weights of a slice in the block's memory at a time.
inline constexpr std::int64_t kDecisionWeights = std::int64_t{kDecisionLoads} * kDecisionThreads;
inline constexpr std::size_t kDecisionSharedBytes = kDecisionWeights * sizeof(float);
static_assert(kDecisionSharedBytes >= kDecisionThreads * sizeof(Candidate));

/// The largest of [0, count), the first of equal ones; every thread gets it. All NaN: {-inf, 0}.
template <class Gpu>
SPECDEC_DEVICE Candidate largest_of(Gpu& gpu, const float* x, std::int64_t count) {
  constexpr std::int64_t kNone = INT64_MAX;
  auto* all = reinterpret_cast<Candidate*>(gpu.shared());
  const auto better = [](const Candidate& a, const Candidate& b) {
    return b.value < a.value || (a.value == b.value && a.index < b.index);
  };
  Candidate best{-__builtin_inff(), kNone};
  const int thread = gpu.thread();
  const int threads = gpu.threads();
  in_batches<kDecisionLoads>(
      share_of(count, thread, threads), [&](int i) { return x[thread + i * threads]; },
      [&](int i, float value) {
        const Candidate mine{value, thread + std::int64_t{i} * threads};
        best = better(mine, best) ? mine : best;
      });
  all[gpu.thread()] = best;
  gpu.sync();
  for (int half = gpu.threads() / 2; half > 0; half /= 2) {
    if (gpu.thread() < half && better(all[gpu.thread() + half], all[gpu.thread()])) {
      all[gpu.thread()] = all[gpu.thread() + half];
    }
    gpu.sync();
  }
  best = all[0];
  gpu.sync();
  return {best.value, best.index == kNone ? 0 : best.index};
}

template <class Gpu>
SPECDEC_DEVICE void slice_max(Gpu& gpu, ConstRows logits, const Range* slices, std::int64_t slice_count,
                              SliceMax* out) {
  const Range slice = slices[gpu.block_x()];
  SliceMax& result = out[gpu.block_y() * slice_count + gpu.block_x()];
  const Candidate best = largest_of(gpu, logits.row(gpu.block_y()) + slice.begin, slice.size());
  if (gpu.thread() == 0) {
    result = slice.empty() ? SliceMax{-__builtin_inff(), -1}
                           : SliceMax{best.value, static_cast<std::int32_t>(slice.begin + best.index)};
  }
}

/// Weight i is added, as a double, in lane i mod 16, in order; then the lanes in their tree.
template <class Gpu>
SPECDEC_DEVICE void slice_sum(Gpu& gpu, ConstRows logits, float temperature, const Range* slices,
                              std::int64_t slice_count, SliceSum* out) {
  const Range slice = slices[gpu.block_x()];
  SliceSum& result = out[gpu.block_y() * slice_count + gpu.block_x()];
  const float* x = logits.row(gpu.block_y()) + slice.begin;
  const float max = largest_of(gpu, x, slice.size()).value / temperature;
  auto* const weights = reinterpret_cast<float*>(gpu.shared());  // [kDecisionWeights]
  const int thread = gpu.thread();
  const int threads = gpu.threads();
  double sum = 0;
  for (std::int64_t first = 0; first < slice.size(); first += kDecisionWeights) {
    const std::int64_t count = slice.size() - first < kDecisionWeights ? slice.size() - first : kDecisionWeights;
    in_batches<kDecisionLoads>(
        share_of(count, thread, threads), [&](int i) { return x[first + thread + i * threads]; },
        [&](int i, float logit) { weights[thread + i * threads] = elementary::exp(logit / temperature - max); });
    gpu.sync();
    if (thread < kRowLanes) {
      in_batches<kDecisionLoads>(
          share_of(count, thread, kRowLanes), [&](int i) { return weights[thread + i * kRowLanes]; },
          [&](int, float weight) { sum += static_cast<double>(weight); });
    }
    gpu.sync();
  }
  const double total = tree_sum(gpu, sum);
  if (gpu.thread() == 0) {
    result = slice.empty() ? SliceSum{-__builtin_inff(), 0} : SliceSum{max, static_cast<float>(total)};
  }
}

}  // namespace specdec::cuda
