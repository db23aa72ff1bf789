#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/elementary.h"
#include "backend/tensor.h"

namespace specdec::cuda {

/// The slots that the rows of a pass see, in the device's memory: a recorded pass sees others each time. Row r sees the slots [0, first_slot) and `depth[r] + 1` slots of its own pass: the slots
/// first_slot, first_slot + 1, ... in a chain, else first_slot + path[r * rows + d] for d = 0 ... depth[r].
struct VisibleSlots {
  const std::int32_t* first_slot = nullptr;
  const std::int32_t* depth = nullptr;
  const std::int32_t* path = nullptr;  ///< null for a chain
  std::int64_t rows = 0;

  constexpr std::int64_t count(std::int64_t row) const { return *first_slot + depth[row] + 1; }
  /// Where the n-th visible slot lies.
  constexpr std::int64_t slot(std::int64_t row, std::int64_t n) const {
    return path == nullptr || n < *first_slot ? n : *first_slot + path[row * rows + n - *first_slot];
  }
};

/// Blocks of keys that one block of threads works on at once, at most.
inline constexpr std::int64_t kKeyBlocksAtOnce = 8;
/// Loads of a thread that are under way at a time: each takes as long as hundreds of multiply-adds.
inline constexpr int kAttentionLoads = 32;

/// Bytes of a block's memory that works on `at_once` blocks of keys: query, weighted values, and of each block of keys its values, weights, slots, largest
/// scores of its two warps and the factor for what came before it; sums by lane.
inline std::size_t attention_shared_bytes(std::int64_t head_dim, std::int64_t at_once) {
  return static_cast<std::size_t>(2 * head_dim + at_once * (head_dim + 2 * kKeyBlock + 3) + kRowLanes) * sizeof(float);
}

/// The largest of what `lanes` neighbouring lanes have, a power of two of them; every one of them gets it.
template <class Gpu>
SPECDEC_DEVICE float largest_of_lanes(Gpu& gpu, float value, int lanes) {
  for (int half = lanes / 2; half > 0; half /= 2) {
    const float other = gpu.shuffle(value, gpu.thread() % kWarp ^ half);
    value = value < other ? other : value;
  }
  return value;
}

/// A query's chain of multiply-adds over a key whose components lie kKeyBlock apart.
SPECDEC_DEVICE inline float score_of(const float* query, const float* key, std::int64_t dim) {
  float sum = 0;
  in_batches<kAttentionLoads>(
      static_cast<int>(dim), [&](int i) { return key[i * static_cast<int>(kKeyBlock)]; },
      [&](int i, float component) { sum = elementary::fused(query[i], component, sum); });
  return sum;
}

/// One component of the weighted values of a block of keys, `left` of them, whose rows of `dim` lie in `slots`. All of `slots` can be read, also where nothing is
/// left.
SPECDEC_DEVICE inline float weigh_values(const float* weights, const std::int32_t* slots, int left, const float* values,
                                         std::int64_t dim) {
  constexpr int kChains = 4;
  float chain[kChains] = {0, 0, 0, 0};
  static_assert(kKeyBlock % kAttentionLoads == 0 && kAttentionLoads % kChains == 0);
  for (int first = 0; first < left; first += kAttentionLoads) {
    float loaded[kAttentionLoads];
    SPECDEC_UNROLL
    for (int s = 0; s < kAttentionLoads; ++s) {
      loaded[s] = values[slots[first + s] * dim];
    }
    SPECDEC_UNROLL
    for (int s = 0; s < kAttentionLoads; ++s) {
      float& sum = chain[s % kChains];
      const float next = elementary::fused(weights[first + s], loaded[s], sum);
      sum = first + s < left ? next : sum;
    }
  }
  return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

/// One query head (y) of one row (x) a block of threads, as many as the keys that it works on at once; with the bits of backend/cpu/attention_inl.h: a score
/// is one chain over head_dim; the weights of a block of keys are summed by slot mod 16, values by slot mod 4 and then in a tree; blocks follow one another in
/// the online form of softmax (Milakov & Gimelshein 2018). What a block of keys adds depends on those before it only through the largest score so
/// far, so that several are worked on side by side and their sums added in order.
template <class Gpu>
SPECDEC_DEVICE void attention(Gpu& gpu, ConstRows q, KvView kv, std::int64_t layer, VisibleSlots visible,
                              const std::int32_t* kv_head, float scale, Rows out) {
  using elementary::fused;
  constexpr float kLowest = -__builtin_inff();
  const std::int64_t row = gpu.block_x();
  const std::int64_t head = gpu.block_y();
  const std::int64_t dim = kv.shape.head_dim;
  const std::int64_t source = kv_head[head];
  const int thread = gpu.thread();
  const int at_once = gpu.threads() / static_cast<int>(kKeyBlock);
  const int own = thread / static_cast<int>(kKeyBlock);

  auto* const query = reinterpret_cast<float*>(gpu.shared());                    // [dim]
  float* const values = query + dim;                                             // [dim]
  float* const parts = values + dim;                                             // [at_once][dim]
  float* const weights = parts + at_once * dim;                                  // [at_once][kKeyBlock]
  auto* const slots = reinterpret_cast<std::int32_t*>(weights + gpu.threads());  // [at_once][kKeyBlock]
  auto* const highest = reinterpret_cast<float*>(slots + gpu.threads());         // [at_once][2]
  float* const factors = highest + 2 * at_once;                                  // [at_once]
  float* const sums = factors + at_once;                                         // [kRowLanes]
  for (std::int64_t i = thread; i < dim; i += gpu.threads()) {
    query[i] = q.row(row)[head * dim + i];
    values[i] = 0;
  }
  if (thread < kRowLanes) {
    sums[thread] = 0;
  }
  gpu.sync();

  float largest = kLowest;
  const std::int64_t count = visible.count(row);
  for (std::int64_t first = 0; first < count; first += gpu.threads()) {
    const std::int64_t left = count - first;
    const std::int64_t all = (left + kKeyBlock - 1) / kKeyBlock;
    const int blocks = all < at_once ? static_cast<int>(all) : at_once;
    float score = kLowest;
    slots[thread] = 0;
    if (thread < left) {
      const std::int64_t slot = visible.slot(row, first + thread);
      slots[thread] = static_cast<std::int32_t>(slot);
      score = score_of(query, kv.key(layer, source, slot, 0), dim) * scale;
    }
    const float of_warp = largest_of_lanes(gpu, score, kWarp);
    if (thread % kWarp == 0) {
      highest[thread / kWarp] = of_warp;
    }
    gpu.sync();
    float own_largest = largest;
    for (int block = 0; block < blocks; ++block) {
      const float before = largest;
      const float of_block = highest[2 * block] < highest[2 * block + 1] ? highest[2 * block + 1] : highest[2 * block];
      largest = before < of_block ? of_block : before;
      own_largest = block == own ? largest : own_largest;
      if (thread == block) {
        factors[block] = elementary::exp(before - largest);
      }
    }
    weights[thread] = elementary::exp(score - own_largest);
    gpu.sync();
    if (thread < kRowLanes) {
      float sum = sums[thread];
      for (int block = 0; block < blocks; ++block) {
        const float* const of = weights + block * kKeyBlock + thread;
        sum = fused(sum, factors[block], (of[0] + of[16]) + (of[32] + of[48]));
      }
      sums[thread] = sum;
    }
    if (own < blocks) {
      const auto keys = static_cast<int>(left - own * kKeyBlock < kKeyBlock ? left - own * kKeyBlock : kKeyBlock);
      for (std::int64_t i = thread % kKeyBlock; i < dim; i += kKeyBlock) {
        parts[own * dim + i] =
            weigh_values(weights + own * kKeyBlock, slots + own * kKeyBlock, keys, kv.value(layer, source, 0) + i, dim);
      }
    }
    gpu.sync();
    for (std::int64_t i = thread; i < dim; i += gpu.threads()) {
      for (int block = 0; block < blocks; ++block) {
        values[i] = fused(values[i], factors[block], parts[block * dim + i]);
      }
    }
  }
  const float total = tree_sum(gpu, sums[thread % kRowLanes]);
  for (std::int64_t i = thread; i < dim; i += gpu.threads()) {
    out.row(row)[head * dim + i] = values[i] / total;
  }
}

}  // namespace specdec::cuda
