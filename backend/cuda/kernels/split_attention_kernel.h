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

/// Queries that a thread works on at once: each key or value that it loads is for all of them. A few rows have four (one row of a model whose KV heads serve four query heads) or eight.
inline constexpr int kFewQueries = 4;
inline constexpr int kManyQueries = 8;
/// Groups of kKeyBlock threads in a block of threads, at most.
inline constexpr std::int64_t kSplitGroups = 8;

/// What the kernels of a number of queries are launched with. Queries beyond a tile come after it.
struct SplitShape {
  /// Of kKeyBlock threads: of different queries for scores, of queries and components for values.
  std::int64_t groups = 1;
  std::int64_t tile = 0;  ///< queries at a time

  constexpr int threads() const { return static_cast<int>(groups * kKeyBlock); }
  /// Keys or values, the tile's queries, its scores or weights, and the largest score of each query.
  constexpr std::size_t shared_bytes(std::int64_t dim) const {
    return static_cast<std::size_t>(kKeyBlock * dim + tile * (padded(dim) + kKeyBlock + 1)) * sizeof(float);
  }
  /// Rows of the block's memory are read four floats at a time.
  static constexpr std::int64_t padded(std::int64_t floats) { return (floats + 3) / 4 * 4; }
};

/// Of attention_scores and attention_values with kQueries, for `queries` that share a KV head.
template <int kQueries>
constexpr SplitShape scores_shape(std::int64_t queries) {
  const std::int64_t groups = (queries + kQueries - 1) / kQueries;
  const std::int64_t at_once = groups < kSplitGroups ? groups : kSplitGroups;
  return {.groups = at_once, .tile = at_once * kQueries};
}
template <int kQueries>
constexpr SplitShape values_shape(std::int64_t queries, std::int64_t dim) {
  const SplitShape scores = scores_shape<kQueries>(queries);
  const std::int64_t groups = scores.groups * ((dim + kKeyBlock - 1) / kKeyBlock);
  return {.groups = groups < kSplitGroups ? groups : kSplitGroups, .tile = scores.tile};
}

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

/// Keys or values of a block of keys, which lie side by side: copied to the block's memory, or, by hints, to the second-level cache.
template <class Gpu>
SPECDEC_DEVICE void bring_block(Gpu& gpu, const float* from, std::int64_t dim, float* to) {
  for (std::int64_t at = gpu.thread() * std::int64_t{4}; at < kKeyBlock * dim; at += gpu.threads() * std::int64_t{4}) {
    gpu.copy_weights(reinterpret_cast<std::byte*>(to + at), reinterpret_cast<const std::byte*>(from + at));
  }
  gpu.end_of_copies();
}
template <class Gpu>
SPECDEC_DEVICE void ask_for_block(Gpu& gpu, const float* from, std::int64_t dim) {
  constexpr std::int64_t kAtOnce = 2048;
  const std::int64_t bytes = kKeyBlock * dim * static_cast<std::int64_t>(sizeof(float));
  for (std::int64_t at = gpu.thread() * kAtOnce; at < bytes; at += gpu.threads() * kAtOnce) {
    gpu.prefetch(reinterpret_cast<const std::byte*>(from) + at, bytes - at < kAtOnce ? bytes - at : kAtOnce);
  }
}

/// Neighbours in memory.
struct alignas(16) Four {
  float of[4];
};

/// The largest of `count` values that neighbouring lanes look through together, `lanes` of them; every one of them gets it.
template <class Gpu, typename Value>
SPECDEC_DEVICE float largest_of(Gpu& gpu, int lanes, std::int64_t count, const Value& value) {
  float largest = -__builtin_inff();
  for (std::int64_t at = gpu.thread() % lanes; at < count; at += lanes) {
    const float next = value(at);
    largest = largest < next ? next : largest;
  }
  for (int half = lanes / 2; half > 0; half /= 2) {
    const float other = gpu.shuffle(largest, gpu.thread() % kWarp ^ half);
    largest = largest < other ? other : largest;
  }
  return largest;
}

/// A key's scores with kQueries queries, which lie `stride` floats apart: one chain of multiply-adds each, as score_of().
template <int kQueries>
SPECDEC_DEVICE void scores_of(const float* query, std::int64_t stride, const float* key, std::int64_t dim,
                              float (&sum)[kQueries]) {
  int i = 0;
  SPECDEC_UNROLL_BY(4)
  for (; i + 4 <= dim; i += 4) {
    float component[4];
    SPECDEC_UNROLL
    for (int c = 0; c < 4; ++c) {
      component[c] = key[(i + c) * kKeyBlock];
    }
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      const Four of_query = *reinterpret_cast<const Four*>(query + j * stride + i);
      SPECDEC_UNROLL
      for (int c = 0; c < 4; ++c) {
        sum[j] = elementary::fused(of_query.of[c], component[c], sum[j]);
      }
    }
  }
  for (; i < dim; ++i) {
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      sum[j] = elementary::fused(query[j * stride + i], key[i * kKeyBlock], sum[j]);
    }
  }
}

/// Blocks: one a block of keys (x) and KV head (y), scores_shape<kQueries>() of all queries.
template <class Gpu, int kQueries>
SPECDEC_DEVICE void attention_scores(Gpu& gpu, ConstRows q, KvView kv, std::int64_t layer, VisibleSlots visible,
                                     const QueryGroup* groups, float scale, AttentionParts parts) {
  constexpr float kLowest = -__builtin_inff();
  constexpr int kLanes = static_cast<int>(kKeyBlock) / kQueries;  // that look for a query's largest score
  const KeyBlockWork work(gpu, visible, groups);
  if (!work.is_visible) {
    return;
  }
  const std::int64_t dim = kv.shape.head_dim;
  const std::int64_t stride = SplitShape::padded(dim);
  const int tile_queries = gpu.threads() / kLanes;
  auto* const keys = reinterpret_cast<float*>(gpu.shared());  // [dim][kKeyBlock]
  float* const query = keys + kKeyBlock * dim;                // [tile][stride]
  float* const scores = query + tile_queries * stride;        // [tile][kKeyBlock]
  const int slot = gpu.thread() % static_cast<int>(kKeyBlock);
  const int group = gpu.thread() / static_cast<int>(kKeyBlock);
  const int own = group * kQueries;  // the first of this thread's queries
  bring_block(gpu, kv.key(layer, work.source, work.first, 0), dim, keys);
  // Values come from memory while scores are made.
  ask_for_block(gpu, kv.value(layer, work.source, work.first), dim);

  for (std::int32_t tile = 0; tile < work.queries; tile += tile_queries) {
    for (int at = group; at < tile_queries; at += gpu.threads() / static_cast<int>(kKeyBlock)) {
      const std::int32_t which = tile + at;
      const float* const from =
          which < work.queries ? q.row(work.group.row(which)) + work.group.head(which) * dim : nullptr;
      for (std::int64_t i = slot; i < dim; i += kKeyBlock) {
        query[at * stride + i] = from == nullptr ? 0 : from[i];
      }
    }
    gpu.template await_copies<0>();
    gpu.sync();
    float sum[kQueries] = {};
    scores_of(query + own * stride, stride, keys + slot, dim, sum);
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
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
    const float* const of_query = scores + gpu.thread() / kLanes * kKeyBlock;
    const float largest = largest_of(gpu, kLanes, kKeyBlock, [&](std::int64_t at) { return of_query[at]; });
    const std::int32_t which = tile + gpu.thread() / kLanes;
    if (which < work.queries && gpu.thread() % kLanes == 0) {
      parts.highest[parts.at(work.group.row(which), work.group.head(which), work.block)] = largest;
    }
  }
}

/// One component of the weighted values of a block of keys for kQueries queries, of whose weights `left[j]` count: as weigh_values(). kAll: all do. Weights lie
/// kKeyBlock apart.
template <bool kAll, int kQueries>
SPECDEC_DEVICE void weigh_block(const float* weights, const std::int64_t (&left)[kQueries], const float* values,
                                std::int64_t dim, float (&to)[kQueries]) {
  float chain[kQueries][4] = {};
  SPECDEC_UNROLL_BY(4)
  for (int s = 0; s < kKeyBlock; s += 4) {
    float value[4];
    SPECDEC_UNROLL
    for (int c = 0; c < 4; ++c) {
      value[c] = values[(s + c) * dim];
    }
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      const Four weight = *reinterpret_cast<const Four*>(weights + j * kKeyBlock + s);
      SPECDEC_UNROLL
      for (int c = 0; c < 4; ++c) {
        const float next = elementary::fused(weight.of[c], value[c], chain[j][c]);
        chain[j][c] = kAll || s + c < left[j] ? next : chain[j][c];
      }
    }
  }
  SPECDEC_UNROLL
  for (int j = 0; j < kQueries; ++j) {
    to[j] = (chain[j][0] + chain[j][1]) + (chain[j][2] + chain[j][3]);
  }
}

/// Queries that attention_values works on at a time. Values are asked for first: nobody has written them since the kernel before the scores'.
struct ValuesTile {
  static constexpr bool kAwaitedByKernel = true;

  std::int32_t queries = 0;
};

/// As attention_scores, after it: values_shape<kQueries>().
template <class Gpu, int kQueries>
SPECDEC_DEVICE void attention_values(Gpu& gpu, KvView kv, std::int64_t layer, VisibleSlots visible,
                                     const QueryGroup* groups, ValuesTile at_a_time, AttentionParts parts) {
  const KeyBlockWork work(gpu, visible, groups);
  if (!work.is_visible) {
    gpu.wait_for_previous();
    return;
  }
  const std::int64_t dim = kv.shape.head_dim;
  const std::int32_t tile_queries = at_a_time.queries;
  auto* const values = reinterpret_cast<float*>(gpu.shared());  // [kKeyBlock][dim]
  float* const weights = values + kKeyBlock * dim;              // [tile][kKeyBlock]
  float* const largest = weights + tile_queries * kKeyBlock;    // [tile]
  const int component = gpu.thread() % static_cast<int>(kKeyBlock);
  const int group = gpu.thread() / static_cast<int>(kKeyBlock);
  const int group_count = gpu.threads() / static_cast<int>(kKeyBlock);
  const auto part_of = [&](std::int32_t which) {
    return parts.at(work.group.row(which), work.group.head(which), work.block);
  };
  bring_block(gpu, kv.value(layer, work.source, work.first), dim, values);
  gpu.wait_for_previous();

  for (std::int32_t tile = 0; tile < work.queries; tile += tile_queries) {
    const std::int32_t queries = work.queries - tile < tile_queries ? work.queries - tile : tile_queries;
    for (std::int32_t query = gpu.thread() / kRowLanes; query - gpu.thread() / kRowLanes < queries;
         query += gpu.threads() / kRowLanes) {
      const float* const of_blocks =
          parts.highest + (query < queries ? part_of(tile + query) - work.block : std::int64_t{0});
      const float highest = largest_of(gpu, kRowLanes, query < queries ? work.block + 1 : 0,
                                       [&](std::int64_t block) { return of_blocks[block]; });
      if (query < queries && gpu.thread() % kRowLanes == 0) {
        largest[query] = highest;
      }
    }
    gpu.sync();
    for (std::int32_t query = group; query < tile_queries; query += group_count) {
      float weight = 0;
      if (query < queries && work.first + component < visible.count(work.group.row(tile + query))) {
        weight = elementary::exp(parts.scores[part_of(tile + query) * kKeyBlock + component] - largest[query]);
      }
      weights[query * kKeyBlock + component] = weight;
    }
    gpu.template await_copies<0>();
    gpu.sync();
    for (std::int32_t at = gpu.thread(); at < queries * kRowLanes; at += gpu.threads()) {
      const float* const of = weights + at / kRowLanes * kKeyBlock + at % kRowLanes;
      parts.sums[part_of(tile + at / kRowLanes) * kRowLanes + at % kRowLanes] =
          (of[0] + of[kRowLanes]) + (of[2 * kRowLanes] + of[3 * kRowLanes]);
    }
    // Each group of threads has kQueries queries and kKeyBlock components of the values.
    const int chunks = static_cast<int>((dim + kKeyBlock - 1) / kKeyBlock);
    for (int share = group; share < chunks * (tile_queries / kQueries); share += group_count) {
      const int first = share / chunks * kQueries;
      const std::int64_t i = share % chunks * kKeyBlock + component;
      if (i >= dim || first >= queries) {
        continue;
      }
      std::int64_t left[kQueries];
      bool all = true;
      SPECDEC_UNROLL
      for (int j = 0; j < kQueries; ++j) {
        left[j] = first + j < queries ? visible.count(work.group.row(tile + first + j)) - work.first : kKeyBlock;
        all = all && left[j] >= kKeyBlock;
      }
      float weighted[kQueries];
      if (all) {
        weigh_block<true>(weights + first * kKeyBlock, left, values + i, dim, weighted);
      } else {
        weigh_block<false>(weights + first * kKeyBlock, left, values + i, dim, weighted);
      }
      SPECDEC_UNROLL
      for (int j = 0; j < kQueries; ++j) {
        if (first + j < queries && left[j] > 0) {
          parts.values[part_of(tile + first + j) * dim + i] = weighted[j];
        }
      }
    }
    gpu.sync();
  }
}

inline constexpr int kMergeThreads = 128;
/// Blocks of keys that a thread has asked for before it adds the first.
inline constexpr int kMergeLoads = 16;
/// A factor for each of kMergeThreads blocks of keys, and the largest score of each warp's.
inline constexpr std::size_t kMergeSharedBytes = (kMergeThreads + kMergeThreads / kWarp) * sizeof(float);

/// Of the threads before this one in the block and of itself, and, in `before`, of those before it alone; both with what came before all of them. `of_warp`: a
/// float of the block's memory for each warp.
template <class Gpu>
SPECDEC_DEVICE float largest_so_far(Gpu& gpu, float value, float* of_warp, float& before) {
  const int lane = gpu.thread() % kWarp;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const float other = gpu.shuffle(value, lane < distance ? lane : lane - distance);
    value = value < other ? other : value;
  }
  if (lane == kWarp - 1) {
    of_warp[gpu.thread() / kWarp] = value;
  }
  gpu.sync();
  for (int warp = 0; warp < gpu.thread() / kWarp; ++warp) {
    before = before < of_warp[warp] ? of_warp[warp] : before;
  }
  value = value < before ? before : value;
  const float neighbour = gpu.shuffle(value, lane == 0 ? 0 : lane - 1);
  before = lane == 0 ? before : neighbour;
  return value;
}

/// What a thread adds of a block of keys.
struct OfBlock {
  float sum;
  float value;
};

/// After attention_values. Blocks: one a row (x) and query head (y), kMergeThreads threads, kMergeSharedBytes.
template <class Gpu>
SPECDEC_DEVICE void attention_merge(Gpu& gpu, VisibleSlots visible, AttentionParts parts, std::int64_t dim, Rows out) {
  using elementary::fused;
  const std::int64_t row = gpu.block_x();
  const std::int64_t head = gpu.block_y();
  const std::int64_t first = parts.at(row, head, 0);
  const std::int64_t blocks = (visible.count(row) + kKeyBlock - 1) / kKeyBlock;
  const int lane = gpu.thread() % kRowLanes;
  auto* const factors = reinterpret_cast<float*>(gpu.shared());  // [kMergeThreads]
  float* const of_warp = factors + kMergeThreads;
  // Every thread takes part in every round, with or without a component of its own: the sum of weights is all warps'.
  for (std::int64_t i = gpu.thread(); i - gpu.thread() < dim; i += kMergeThreads) {
    float largest = -__builtin_inff();
    float sum = 0;
    float value = 0;
    const std::int64_t component = i < dim ? i : 0;
    for (std::int64_t at = first; at < first + blocks; at += kMergeThreads) {
      const std::int64_t left = first + blocks - at;
      const int count = left < kMergeThreads ? static_cast<int>(left) : kMergeThreads;
      // What a block of keys changes of those before it, whose largest score may have been smaller.
      float before = largest;
      const float after = largest_so_far(
          gpu, gpu.thread() < count ? parts.highest[at + gpu.thread()] : -__builtin_inff(), of_warp, before);
      factors[gpu.thread()] = elementary::exp(before - after);
      gpu.sync();
      for (int warp = 0; warp < kMergeThreads / kWarp; ++warp) {
        largest = largest < of_warp[warp] ? of_warp[warp] : largest;
      }
      in_batches<kMergeLoads>(
          count,
          [&](int block) {
            return OfBlock{parts.sums[(at + block) * kRowLanes + lane], parts.values[(at + block) * dim + component]};
          },
          [&](int block, const OfBlock& of) {
            sum = fused(sum, factors[block], of.sum);
            value = fused(value, factors[block], of.value);
          });
      gpu.sync();
    }
    const float total = tree_sum(gpu, sum);
    if (i < dim) {
      out.row(row)[head * dim + i] = value / total;
    }
  }
}

}  // namespace specdec::cuda
