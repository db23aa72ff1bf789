#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/attention_kernel.h"
#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/elementary.h"
#include "backend/tensor.h"

/// Attention over a long cache: blocks of keys are worked on side by side, each read once for all rows and all query heads that share its KV head. The
/// bits are those of attention() (attention_kernel.h), which takes blocks one after another: what a block adds depends on those before it only through the
/// largest score so far, and a maximum is the same in any order. Three kernels: scores, weighted values of each block, and the blocks' sum in their
/// order. For chains; rows of a tree see slots of their own.
namespace specdec::cuda {

inline constexpr int kSplitThreads = 256;
/// Rows and heads that are worked on together: four groups of threads, four queries each.
inline constexpr int kSplitQueries = 16;
inline constexpr int kQueriesOfThread = 4;
inline constexpr int kLanesOfQuery = kSplitThreads / kSplitQueries;
/// Components of keys or values in the block's memory at a time.
inline constexpr std::int64_t kSplitDims = 64;
inline constexpr std::size_t kSplitSharedBytes =
    (static_cast<std::size_t>(kSplitDims) * kKeyBlock + 2 * std::size_t{kSplitQueries} * kKeyBlock + kSplitQueries) *
    sizeof(float);
static_assert(kSplitDims == kKeyBlock && kSplitThreads == kQueriesOfThread * kKeyBlock &&
              kSplitQueries == kQueriesOfThread * kQueriesOfThread && kLanesOfQuery == kRowLanes);

/// What the kernels hand on, for every row, head and block of keys.
struct AttentionParts {
  float* scores = nullptr;   ///< [rows][heads][blocks][kKeyBlock]
  float* highest = nullptr;  ///< [rows][heads][blocks]
  float* sums = nullptr;     ///< [rows][heads][blocks][kRowLanes], of weights
  float* values = nullptr;   ///< [rows][heads][blocks][head_dim], weighted
  std::int64_t heads = 0;
  std::int64_t blocks = 0;

  constexpr AttentionParts(float* memory, std::int64_t rows, std::int64_t of_heads, std::int64_t of_blocks)
      : scores(memory),
        highest(scores + rows * of_heads * of_blocks * kKeyBlock),
        sums(highest + rows * of_heads * of_blocks),
        values(sums + rows * of_heads * of_blocks * kRowLanes),
        heads(of_heads),
        blocks(of_blocks) {}
  static constexpr std::size_t floats(std::int64_t rows, std::int64_t heads, std::int64_t blocks, std::int64_t dim) {
    return static_cast<std::size_t>(rows * heads * blocks * (kKeyBlock + 1 + kRowLanes + dim));
  }
  constexpr std::int64_t at(std::int64_t row, std::int64_t head, std::int64_t block) const {
    return (row * heads + head) * blocks + block;
  }
};

/// The queries that read one KV head: every row's query heads [first, first + heads). They are neighbours.
struct QueryGroup {
  std::int32_t first = 0;
  std::int32_t heads = 0;

  bool operator==(const QueryGroup&) const = default;
  constexpr std::int64_t row(std::int32_t query) const { return query / heads; }
  constexpr std::int64_t head(std::int32_t query) const { return first + query % heads; }
};

/// What one block of threads works on: a block of keys of one KV head, for all queries that read it.
struct KeyBlockWork {
  std::int64_t block = 0;
  std::int64_t source = 0;  ///< the KV head
  std::int64_t first = 0;   ///< slot
  bool is_visible = false;  ///< to some row: a grid covers more blocks than there may be
  QueryGroup group;
  std::int32_t queries = 0;  ///< rows * group.heads

  template <class Gpu>
  SPECDEC_DEVICE KeyBlockWork(Gpu& gpu, const VisibleSlots& visible, const QueryGroup* groups)
      : block(gpu.block_x()),
        source(gpu.block_y()),
        first(block * kKeyBlock),
        is_visible(first < visible.count(visible.rows - 1)),
        group(groups[source]),
        queries(static_cast<std::int32_t>(visible.rows) * group.heads) {}
};

/// Brings kSplitDims * kKeyBlock floats of [rows, cols] to the block's memory, [kSplitDims or kKeyBlock][64], those that there are. All loads of a thread
/// are under way at once.
template <class Gpu>
SPECDEC_DEVICE void bring_tile(Gpu& gpu, const float* from, std::int64_t stride, std::int64_t rows, std::int64_t cols,
                               float* to) {
  constexpr int kLoads = static_cast<int>(kSplitDims * kKeyBlock) / kSplitThreads;
  constexpr int kRowsAtOnce = kSplitThreads / static_cast<int>(kKeyBlock);
  float loaded[kLoads];
  const int row = gpu.thread() / static_cast<int>(kKeyBlock);
  const int col = gpu.thread() % static_cast<int>(kKeyBlock);
  const float* const mine = from + row * stride + col;
  load_or_zero(loaded, col < cols ? share_of(rows, row, kRowsAtOnce) : 0,
               [&](int i) { return mine[i * kRowsAtOnce * stride]; });
  SPECDEC_UNROLL
  for (int i = 0; i < kLoads; ++i) {
    to[gpu.thread() + i * kSplitThreads] = loaded[i];
  }
}

/// Of a value in each of kLanesOfQuery neighbouring lanes; every one of them gets it.
template <class Gpu>
SPECDEC_DEVICE float highest_of_query(Gpu& gpu, float value) {
  const int lane = gpu.thread() % kWarp;
  for (int half = kLanesOfQuery / 2; half > 0; half /= 2) {
    const float other = gpu.shuffle(value, lane ^ half);
    value = value < other ? other : value;
  }
  return value;
}

/// Blocks: one a block of keys (x) and KV head (y), kSplitThreads threads, kSplitSharedBytes.
template <class Gpu>
SPECDEC_DEVICE void attention_scores(Gpu& gpu, ConstRows q, KvView kv, std::int64_t layer, VisibleSlots visible,
                                     const QueryGroup* groups, float scale, AttentionParts parts) {
  using elementary::fused;
  constexpr float kLowest = -__builtin_inff();
  const KeyBlockWork work(gpu, visible, groups);
  if (!work.is_visible) {
    return;
  }
  const std::int64_t dim = kv.shape.head_dim;
  auto* keys = reinterpret_cast<float*>(gpu.shared());  // [kSplitDims][kKeyBlock]
  float* query = keys + kSplitDims * kKeyBlock;         // [kSplitQueries][kSplitDims]
  float* scores = query + kSplitQueries * kSplitDims;   // [kSplitQueries][kKeyBlock]
  const std::int64_t slot = gpu.thread() % kKeyBlock;
  const int own = gpu.thread() / static_cast<int>(kKeyBlock) * kQueriesOfThread;  // the first of this thread's queries

  for (std::int32_t tile = 0; tile < work.queries; tile += kSplitQueries) {
    float sum[kQueriesOfThread] = {};
    for (std::int64_t dims = 0; dims < dim; dims += kSplitDims) {
      const std::int64_t count = dim - dims < kSplitDims ? dim - dims : kSplitDims;
      SPECDEC_UNROLL
      for (int j = 0; j < kQueriesOfThread; ++j) {
        const int at = gpu.thread() + j * kSplitThreads;
        const std::int32_t which = tile + at / static_cast<int>(kSplitDims);
        const int i = at % static_cast<int>(kSplitDims);
        query[at] = which < work.queries && i < count
                        ? q.row(work.group.row(which))[work.group.head(which) * dim + dims + i]
                        : 0;
      }
      bring_tile(gpu, kv.key(layer, work.source, work.first, dims), kKeyBlock, count, kKeyBlock, keys);
      gpu.sync();
      SPECDEC_UNROLL_BY(8)
      for (std::int64_t i = 0; i < count; ++i) {
        const float key = keys[i * kKeyBlock + slot];
        SPECDEC_UNROLL
        for (int j = 0; j < kQueriesOfThread; ++j) {
          sum[j] = fused(query[(own + j) * kSplitDims + i], key, sum[j]);
        }
      }
      gpu.sync();
    }
    SPECDEC_UNROLL
    for (int j = 0; j < kQueriesOfThread; ++j) {
      const std::int32_t which = tile + own + j;
      float score = kLowest;
      if (which < work.queries) {
        const std::int64_t row = work.group.row(which);
        score = work.first + slot < visible.count(row) ? sum[j] * scale : kLowest;
        parts.scores[parts.at(row, work.group.head(which), work.block) * kKeyBlock + slot] = score;
      }
      scores[(own + j) * kKeyBlock + slot] = score;
    }
    gpu.sync();
    const std::int32_t which = tile + gpu.thread() / kLanesOfQuery;
    float largest = kLowest;
    for (std::int64_t at = gpu.thread() % kLanesOfQuery; at < kKeyBlock; at += kLanesOfQuery) {
      const float score = scores[gpu.thread() / kLanesOfQuery * kKeyBlock + at];
      largest = largest < score ? score : largest;
    }
    largest = highest_of_query(gpu, largest);
    if (which < work.queries && gpu.thread() % kLanesOfQuery == 0) {
      parts.highest[parts.at(work.group.row(which), work.group.head(which), work.block)] = largest;
    }
  }
}

/// As attention_scores, after it.
template <class Gpu>
SPECDEC_DEVICE void attention_values(Gpu& gpu, KvView kv, std::int64_t layer, VisibleSlots visible,
                                     const QueryGroup* groups, AttentionParts parts) {
  using elementary::fused;
  constexpr int kValueChains = 4;
  const KeyBlockWork work(gpu, visible, groups);
  if (!work.is_visible) {
    return;
  }
  const std::int64_t dim = kv.shape.head_dim;
  auto* values = reinterpret_cast<float*>(gpu.shared());  // [kKeyBlock][kSplitDims]
  float* weights = values + kKeyBlock * kSplitDims;       // [kSplitQueries][kKeyBlock]
  float* largest = weights + kSplitQueries * kKeyBlock;   // [kSplitQueries]
  const std::int64_t component = gpu.thread() % kSplitDims;
  const int own = gpu.thread() / static_cast<int>(kSplitDims) * kQueriesOfThread;
  const int lane = gpu.thread() % kLanesOfQuery;
  const int of_lane = gpu.thread() / kLanesOfQuery;

  for (std::int32_t tile = 0; tile < work.queries; tile += kSplitQueries) {
    const std::int32_t summed = tile + of_lane;  // the query whose maximum and sum this thread has a part of
    float highest = -__builtin_inff();
    if (summed < work.queries) {
      const float* of_blocks = parts.highest + parts.at(work.group.row(summed), work.group.head(summed), 0);
      for (std::int64_t b = lane; b <= work.block; b += kLanesOfQuery) {
        highest = highest < of_blocks[b] ? of_blocks[b] : highest;
      }
    }
    highest = highest_of_query(gpu, highest);
    if (lane == 0) {
      largest[of_lane] = highest;
    }
    gpu.sync();
    std::int64_t left[kQueriesOfThread];
    SPECDEC_UNROLL
    for (int j = 0; j < kQueriesOfThread; ++j) {
      const std::int32_t which = tile + own + j;
      left[j] = which < work.queries ? visible.count(work.group.row(which)) - work.first : 0;
      float weight = 0;
      if (left[j] > 0) {
        const std::int64_t at = parts.at(work.group.row(which), work.group.head(which), work.block);
        weight = elementary::exp(parts.scores[at * kKeyBlock + component] - largest[own + j]);
      }
      weights[(own + j) * kKeyBlock + component] = weight;
    }
    gpu.sync();
    if (summed < work.queries) {
      const float* of = weights + of_lane * kKeyBlock + lane;
      parts.sums[parts.at(work.group.row(summed), work.group.head(summed), work.block) * kRowLanes + lane] =
          (of[0] + of[kRowLanes]) + (of[2 * kRowLanes] + of[3 * kRowLanes]);
    }
    for (std::int64_t dims = 0; dims < dim; dims += kSplitDims) {
      const std::int64_t count = dim - dims < kSplitDims ? dim - dims : kSplitDims;
      bring_tile(gpu, kv.value(layer, work.source, work.first) + dims, dim, kKeyBlock, count, values);
      gpu.sync();
      float chain[kQueriesOfThread][kValueChains] = {};
      for (std::int64_t s = 0; s < kKeyBlock && component < count; s += kValueChains) {
        SPECDEC_UNROLL
        for (int c = 0; c < kValueChains; ++c) {
          const float value = values[(s + c) * kSplitDims + component];
          SPECDEC_UNROLL
          for (int j = 0; j < kQueriesOfThread; ++j) {
            const float next = fused(weights[(own + j) * kKeyBlock + s + c], value, chain[j][c]);
            chain[j][c] = s + c < left[j] ? next : chain[j][c];
          }
        }
      }
      SPECDEC_UNROLL
      for (int j = 0; j < kQueriesOfThread; ++j) {
        if (left[j] > 0 && component < count) {
          const std::int32_t which = tile + own + j;
          parts.values[parts.at(work.group.row(which), work.group.head(which), work.block) * dim + dims + component] =
              (chain[j][0] + chain[j][1]) + (chain[j][2] + chain[j][3]);
        }
      }
      gpu.sync();
    }
  }
}

inline constexpr int kMergeThreads = 128;
/// Blocks of keys that a thread has asked for before it adds the first.
inline constexpr int kMergeLoads = 8;

/// What a thread adds of a block of keys.
struct OfBlock {
  float highest;
  float sum;
  float value;
};

/// After attention_values. Blocks: one a row (x) and query head (y), kMergeThreads threads.
template <class Gpu>
SPECDEC_DEVICE void attention_merge(Gpu& gpu, VisibleSlots visible, AttentionParts parts, std::int64_t dim, Rows out) {
  using elementary::fused;
  const std::int64_t row = gpu.block_x();
  const std::int64_t head = gpu.block_y();
  const std::int64_t first = parts.at(row, head, 0);
  const std::int64_t blocks = (visible.count(row) + kKeyBlock - 1) / kKeyBlock;
  const int lane = gpu.thread() % kRowLanes;
  // Every thread takes part in every round, with or without a component of its own: the sum of weights is all warps'.
  for (std::int64_t i = gpu.thread(); i - gpu.thread() < dim; i += kMergeThreads) {
    float largest = -__builtin_inff();
    float sum = 0;
    float value = 0;
    const std::int64_t component = i < dim ? i : 0;
    in_batches<kMergeLoads>(
        static_cast<int>(blocks),
        [&](int block) {
          const std::int64_t at = first + block;
          return OfBlock{parts.highest[at], parts.sums[at * kRowLanes + lane], parts.values[at * dim + component]};
        },
        [&](int, const OfBlock& block) {
          const float before = largest;
          largest = before < block.highest ? block.highest : before;
          const float factor = elementary::exp(before - largest);
          sum = fused(sum, factor, block.sum);
          value = fused(value, factor, block.value);
        });
    const float total = tree_sum(gpu, sum);
    if (i < dim) {
      out.row(row)[head * dim + i] = value / total;
    }
  }
}

}  // namespace specdec::cuda
