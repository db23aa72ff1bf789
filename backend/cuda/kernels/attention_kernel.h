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

inline constexpr int kAttentionThreads = kKeyBlock;

/// Bytes of a block's memory: query, weighted values, weights of a block of keys, sums by lane, and what a reduction needs.
inline std::size_t attention_shared_bytes(std::int64_t head_dim) {
  return static_cast<std::size_t>(2 * head_dim + kKeyBlock + kRowLanes + kAttentionThreads) * sizeof(float);
}

/// One query head of one row a block of kKeyBlock threads, with the bits of backend/cpu/attention_inl.h: a score is one chain over
/// head_dim; the weights of a block of keys are summed by slot mod 16, values by slot mod 4 and then in a tree; blocks follow one another in the online
/// form of softmax (Milakov & Gimelshein 2018).
template <class Gpu>
SPECDEC_DEVICE void attention(Gpu& gpu, ConstRows q, KvView kv, std::int64_t layer, VisibleSlots visible,
                              const std::int32_t* kv_head, float scale, Rows out) {
  using elementary::fused;
  constexpr float kLowest = -__builtin_inff();
  constexpr int kValueChains = 4;
  const std::int64_t row = gpu.block_x();
  const std::int64_t head = gpu.block_y();
  const std::int64_t dim = kv.shape.head_dim;
  const std::int64_t source = kv_head[head];
  const int thread = gpu.thread();

  auto* query = reinterpret_cast<float*>(gpu.shared());  // [dim]
  float* values = query + dim;                           // [dim]
  float* weights = values + dim;                         // [kKeyBlock]
  float* sums = weights + kKeyBlock;                     // [kRowLanes]
  float* highest = sums + kRowLanes;                     // [threads]
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
  for (std::int64_t first = 0; first < count; first += kKeyBlock) {
    const std::int64_t left = count - first < kKeyBlock ? count - first : kKeyBlock;
    float score = kLowest;
    if (thread < left) {
      const float* key = kv.key(layer, source, visible.slot(row, first + thread), 0);
      float sum = 0;
      for (std::int64_t i = 0; i < dim; ++i) {
        sum = fused(query[i], key[i * kKeyBlock], sum);
      }
      score = sum * scale;
    }
    highest[thread] = score;
    gpu.sync();
    for (int half = kAttentionThreads / 2; half > 0; half /= 2) {
      if (thread < half && highest[thread] < highest[thread + half]) {
        highest[thread] = highest[thread + half];
      }
      gpu.sync();
    }
    const float before = largest;
    largest = before < highest[0] ? highest[0] : before;
    const float factor = elementary::exp(before - largest);
    weights[thread] = elementary::exp(score - largest);
    gpu.sync();
    if (thread < kRowLanes) {
      const float block = (weights[thread] + weights[thread + 16]) + (weights[thread + 32] + weights[thread + 48]);
      sums[thread] = fused(sums[thread], factor, block);
    }
    for (std::int64_t i = thread; i < dim; i += gpu.threads()) {
      float chain[kValueChains] = {0, 0, 0, 0};
      for (std::int64_t s = 0; s < left; ++s) {
        const float value = kv.value(layer, source, visible.slot(row, first + s))[i];
        chain[s % kValueChains] = fused(weights[s], value, chain[s % kValueChains]);
      }
      values[i] = fused(values[i], factor, (chain[0] + chain[1]) + (chain[2] + chain[3]));
    }
    gpu.sync();
  }
  const float total = tree_sum(gpu, sums[thread % kRowLanes]);
  for (std::int64_t i = thread; i < dim; i += gpu.threads()) {
    out.row(row)[head * dim + i] = values[i] / total;
  }
}

}  // namespace specdec::cuda
