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
/// Groups of kKeyBlock threads in a block of threads, at most: as many as there are registers for.
inline constexpr std::int64_t kSplitGroups = 8;
inline constexpr std::int64_t kFewQueriesGroups = 12;

/// Fewer blocks of threads than this leave multiprocessors of a GPU without work.
inline constexpr std::int64_t kEnoughBlocks = 128;

/// What the kernels of a number of queries are launched with, for each block of keys and KV head.
struct SplitShape {
  std::int64_t tiles = 1;  ///< blocks of threads
  std::int64_t tile = 0;   ///< queries of one
  std::int64_t groups =
      1;  ///< of kKeyBlock threads: of different queries for scores, of queries and components for values

  constexpr int threads() const { return static_cast<int>(groups * kKeyBlock); }
  /// Keys or values, the tile's queries, its scores or weights, and the largest score of each query.
  constexpr std::size_t shared_bytes(std::int64_t dim) const {
    return static_cast<std::size_t>(kKeyBlock * dim + tile * (padded(dim) + kKeyBlock + 1)) * sizeof(float);
  }
  /// Rows of the block's memory are read four floats at a time.
  static constexpr std::int64_t padded(std::int64_t floats) { return (floats + 3) / 4 * 4; }
};

/// Of attention_scores with kQueries, for `queries` that share a KV head; `key_blocks` of all KV heads.
template <int kQueries>
constexpr SplitShape scores_shape(std::int64_t queries, std::int64_t key_blocks) {
  const std::int64_t all = (queries + kQueries - 1) / kQueries;
  std::int64_t groups = all < kSplitGroups ? all : kSplitGroups;
  while (groups > 1 && (all + groups - 1) / groups * key_blocks < kEnoughBlocks) {
    groups = (groups + 1) / 2;
  }
  return {.tiles = (all + groups - 1) / groups, .tile = groups * kQueries, .groups = groups};
}
/// Of attention_values after scores of that shape.
template <int kQueries>
constexpr SplitShape values_shape(SplitShape scores, std::int64_t dim) {
  const std::int64_t groups = scores.groups * ((dim + kKeyBlock - 1) / kKeyBlock);
  constexpr std::int64_t kMost = kQueries == kFewQueries ? kFewQueriesGroups : kSplitGroups;
  scores.groups = groups < kMost ? groups : kMost;
  return scores;
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

/// Those of the kernels after attention_scores, which start early.
struct AwaitedParts : AttentionParts {
  static constexpr bool kAwaitedByKernel = true;
};

/// The queries that read one KV head: every row's query heads [first, first + heads). They are neighbours.
struct QueryGroup {
  std::int32_t first = 0;
  std::int32_t heads = 0;

  bool operator==(const QueryGroup&) const = default;
  constexpr std::int64_t row(std::int32_t query) const { return query / heads; }
  constexpr std::int64_t head(std::int32_t query) const { return first + query % heads; }
};

/// What one block of threads works on: a block of keys of one KV head, for a tile of the queries that read it.
struct KeyBlockWork {
  std::int64_t block = 0;
  std::int64_t source = 0;  ///< the KV head
  std::int64_t first = 0;   ///< slot
  QueryGroup group;
  std::int32_t first_query = 0;
  std::int32_t queries = 0;  ///< none where no row sees the block: a grid covers more of them than there may be

  template <class Gpu>
  SPECDEC_DEVICE KeyBlockWork(Gpu& gpu, std::int64_t blocks, std::int32_t tile, const VisibleSlots& visible,
                              const QueryGroup* groups)
      : block(gpu.block_x() % blocks),
        source(gpu.block_y()),
        first(block * kKeyBlock),
        group(groups[source]),
        first_query(static_cast<std::int32_t>(gpu.block_x() / blocks) * tile) {
    const std::int32_t left = static_cast<std::int32_t>(visible.rows) * group.heads - first_query;
    queries = first >= visible.count(visible.rows - 1) || left < 0 ? 0 : left < tile ? left : tile;
  }
  /// The tile's i-th.
  constexpr std::int64_t row(std::int32_t i) const { return group.row(first_query + i); }
  constexpr std::int64_t head(std::int32_t i) const { return group.head(first_query + i); }
  constexpr std::int64_t part(const AttentionParts& parts, std::int32_t i) const {
    return parts.at(row(i), head(i), block);
  }
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

/// `count` floats of a row, or zeros, to the block's memory, by kKeyBlock threads.
template <class Gpu>
SPECDEC_DEVICE void copy_row(Gpu& gpu, const float* from, std::int64_t count, bool is, float* to) {
  constexpr int kBytes = sizeof(float);
  for (std::int64_t i = gpu.thread() % static_cast<int>(kKeyBlock); i < count; i += kKeyBlock) {
    gpu.template copy_or_zero<kBytes>(reinterpret_cast<std::byte*>(to + i),
                                      reinterpret_cast<const std::byte*>(from + i), is);
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
  const int lane = gpu.thread() % lanes;
  in_batches<4>(
      share_of(count, lane, lanes), [&](int i) { return value(lane + i * lanes); },
      [&](int, float next) { largest = largest < next ? next : largest; });
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

/// Blocks: one a block of keys and tile of queries (x) and KV head (y), of scores_shape<kQueries>() of all queries.
template <class Gpu, int kQueries>
SPECDEC_DEVICE void attention_scores(Gpu& gpu, ConstRows q, KvView kv, std::int64_t layer, VisibleSlots visible,
                                     const QueryGroup* groups, float scale, AttentionParts parts) {
  constexpr float kLowest = -__builtin_inff();
  constexpr int kLanes = static_cast<int>(kKeyBlock) / kQueries;  // that look for a query's largest score
  const std::int32_t tile = gpu.threads() / kLanes;
  const KeyBlockWork work(gpu, parts.blocks, tile, visible, groups);
  if (work.queries == 0) {
    return;
  }
  const std::int64_t dim = kv.shape.head_dim;
  const std::int64_t stride = SplitShape::padded(dim);
  auto* const keys = reinterpret_cast<float*>(gpu.shared());  // [dim][kKeyBlock]
  float* const query = keys + kKeyBlock * dim;                // [tile][stride]
  float* const scores = query + tile * stride;                // [tile][kKeyBlock]
  const int slot = gpu.thread() % static_cast<int>(kKeyBlock);
  const int group = gpu.thread() / static_cast<int>(kKeyBlock);
  const int own = group * kQueries;  // the first of this thread's queries
  bring_block(gpu, kv.key(layer, work.source, work.first, 0), dim, keys);
  for (std::int32_t i = group; i < tile; i += gpu.threads() / static_cast<int>(kKeyBlock)) {
    const bool is = i < work.queries;
    copy_row(gpu, is ? q.row(work.row(i)) + work.head(i) * dim : q.data, dim, is, query + i * stride);
  }
  gpu.end_of_copies();
  if (work.first_query == 0) {
    // They come from memory while scores are made.
    ask_for_block(gpu, kv.value(layer, work.source, work.first), dim);
  }
  gpu.template await_copies<0>();
  gpu.sync();
  float sum[kQueries] = {};
  scores_of(query + own * stride, stride, keys + slot, dim, sum);
  SPECDEC_UNROLL
  for (int j = 0; j < kQueries; ++j) {
    float score = kLowest;
    if (own + j < work.queries) {
      score = work.first + slot < visible.count(work.row(own + j)) ? sum[j] * scale : kLowest;
      parts.scores[work.part(parts, own + j) * kKeyBlock + slot] = score;
    }
    scores[(own + j) * kKeyBlock + slot] = score;
  }
  gpu.sync();
  const std::int32_t i = gpu.thread() / kLanes;
  const float* const of_query = scores + i * kKeyBlock;
  const float largest = largest_of(gpu, kLanes, kKeyBlock, [&](std::int64_t at) { return of_query[at]; });
  if (i < work.queries && gpu.thread() % kLanes == 0) {
    parts.highest[work.part(parts, i)] = largest;
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

/// As attention_scores, after it and with the same tiles: values_shape<kQueries>(). Values are asked for first: nobody has written them since the kernel before the
/// scores'.
template <class Gpu, int kQueries>
SPECDEC_DEVICE void attention_values(Gpu& gpu, KvView kv, std::int64_t layer, VisibleSlots visible,
                                     const QueryGroup* groups, std::int32_t tile, AwaitedParts parts) {
  const KeyBlockWork work(gpu, parts.blocks, tile, visible, groups);
  const std::int64_t dim = kv.shape.head_dim;
  auto* const values = reinterpret_cast<float*>(gpu.shared());  // [kKeyBlock][dim]
  float* const weights = values + kKeyBlock * dim;              // [tile][kKeyBlock]
  float* const largest = weights + tile * kKeyBlock;            // [tile]
  const int component = gpu.thread() % static_cast<int>(kKeyBlock);
  const int group = gpu.thread() / static_cast<int>(kKeyBlock);
  const int group_count = gpu.threads() / static_cast<int>(kKeyBlock);
  if (work.queries > 0) {
    bring_block(gpu, kv.value(layer, work.source, work.first), dim, values);
  }
  gpu.wait_for_previous();
  if (work.queries == 0) {
    return;
  }
  for (std::int32_t i = group; i < tile; i += group_count) {
    const bool is = i < work.queries;
    copy_row(gpu, parts.scores + (is ? work.part(parts, i) * kKeyBlock : 0), kKeyBlock, is, weights + i * kKeyBlock);
  }
  gpu.end_of_copies();
  // All lanes of a warp look, with or without a query.
  for (std::int32_t i = gpu.thread() / kRowLanes; i - gpu.thread() / kRowLanes < work.queries;
       i += gpu.threads() / kRowLanes) {
    const bool is = i < work.queries;
    const float* const of_blocks = parts.highest + (is ? work.part(parts, i) - work.block : 0);
    const float highest =
        largest_of(gpu, kRowLanes, is ? work.block + 1 : 0, [&](std::int64_t block) { return of_blocks[block]; });
    if (is && gpu.thread() % kRowLanes == 0) {
      largest[i] = highest;
    }
  }
  gpu.template await_copies<0>();
  gpu.sync();
  for (std::int32_t i = group; i < work.queries; i += group_count) {
    float& weight = weights[i * kKeyBlock + component];
    const bool is = work.first + component < visible.count(work.row(i));
    weight = is ? elementary::exp(weight - largest[i]) : 0;
  }
  gpu.sync();
  for (std::int32_t at = gpu.thread(); at < work.queries * kRowLanes; at += gpu.threads()) {
    const float* const of = weights + at / kRowLanes * kKeyBlock + at % kRowLanes;
    parts.sums[work.part(parts, at / kRowLanes) * kRowLanes + at % kRowLanes] =
        (of[0] + of[kRowLanes]) + (of[2 * kRowLanes] + of[3 * kRowLanes]);
  }
  // Each group of threads has kQueries queries and kKeyBlock components of the values.
  const int chunks = static_cast<int>((dim + kKeyBlock - 1) / kKeyBlock);
  for (int share = group; share < chunks * (tile / kQueries); share += group_count) {
    const int first = share / chunks * kQueries;
    const std::int64_t i = share % chunks * kKeyBlock + component;
    if (i >= dim || first >= work.queries) {
      continue;
    }
    std::int64_t left[kQueries];
    bool all = true;
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      left[j] = first + j < work.queries ? visible.count(work.row(first + j)) - work.first : kKeyBlock;
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
      if (first + j < work.queries && left[j] > 0) {
        parts.values[work.part(parts, first + j) * dim + i] = weighted[j];
      }
    }
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
SPECDEC_DEVICE void attention_merge(Gpu& gpu, VisibleSlots visible, AwaitedParts parts, std::int64_t dim, Rows out) {
  using elementary::fused;
  const std::int64_t row = gpu.block_x();
  const std::int64_t head = gpu.block_y();
  const std::int64_t first = parts.at(row, head, 0);
  const std::int64_t blocks = (visible.count(row) + kKeyBlock - 1) / kKeyBlock;
  const int lane = gpu.thread() % kRowLanes;
  auto* const factors = reinterpret_cast<float*>(gpu.shared());  // [kMergeThreads]
  float* const of_warp = factors + kMergeThreads;
  gpu.wait_for_previous();
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
