#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/attention_kernel.h"
#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/elementary.h"
#include "backend/tensor.h"

/// Attention whose blocks of keys are worked on side by side, each read for a tile of the queries that share its KV head, all of them where keys are many. The
/// bits are those of attention() (attention_kernel.h), which takes blocks one after another: what a block adds depends on those before it only through the
/// largest score so far, and a maximum is the same in any order. Three kernels: scores, weighted values of each block, and the blocks' sum in their
/// order. For chains; rows of a tree see slots of their own.
namespace specdec::cuda {

/// Keys of a block, as threads are counted.
inline constexpr int kKeys = static_cast<int>(kKeyBlock);

/// Fewer blocks of threads than this leave multiprocessors of a GPU without work.
inline constexpr std::int64_t kEnoughBlocks = 128;
/// Queries that a thread works on at once, so that each key or value that it reads is for all of them: 2, 4 or 8. `queries` share a KV head, `key_blocks` are those of
/// all KV heads. Fewer keep more threads busy, more read less; what an H200 was fastest with (docs/benchmarking.md).
constexpr int queries_of_thread(std::int64_t queries, std::int64_t key_blocks) {
  if (key_blocks < kEnoughBlocks) {
    return queries <= 20 ? 2 : 4;
  }
  return queries <= 8 ? 2 : queries <= 32 ? 4 : 8;
}
/// Groups of kKeyBlock threads in a block of threads, at most: eight queries take more registers, and several blocks on a multiprocessor hide each other's waits.
template <int kQueries>
inline constexpr std::int64_t kSplitGroups = kQueries == 8 ? 4 : 8;

/// Where a query of a tile belongs: a thread divides for one of them, and all read what came out.
struct TileQuery {
  std::int32_t row = 0;
  std::int32_t head = 0;
  std::int32_t part = 0;  ///< AttentionParts::at()
  std::int32_t seen = 0;  ///< slots of the block of keys that its row sees; none where there is no such query
};

/// What the kernels of a number of queries are launched with, for each block of keys and KV head.
struct SplitShape {
  std::int64_t tiles = 1;   ///< blocks of threads
  std::int64_t tile = 0;    ///< queries of one
  std::int64_t groups = 1;  ///< of kKeyBlock threads: of queries for scores, of queries and components for values

  constexpr int threads() const { return static_cast<int>(groups * kKeyBlock); }
  /// Keys or values, the tile's queries, its scores or weights, and of each query where it belongs and its largest score.
  constexpr std::size_t shared_bytes(std::int64_t dim) const {
    return static_cast<std::size_t>(kKeyBlock * dim + tile * (padded(dim) + kKeyBlock + 1)) * sizeof(float) +
           static_cast<std::size_t>(tile) * sizeof(TileQuery);
  }
  /// Rows of the block's memory are read four floats at a time.
  static constexpr std::int64_t padded(std::int64_t floats) { return (floats + 3) / 4 * 4; }
};

/// The fewest shares that `count` are dealt out in, none of more than `most`, and how many the largest of them has.
struct Shares {
  std::int64_t shares;
  std::int64_t largest;

  constexpr Shares(std::int64_t count, std::int64_t most)
      : shares((count + most - 1) / most), largest((count + shares - 1) / shares) {}
};

/// Of a block's memory, what all GPUs since compute capability 8.0 give.
inline constexpr std::size_t kSplitMemory = std::size_t{96} * 1024;

/// Of attention_scores with kQueries, for `queries` that share a KV head; `key_blocks` of all KV heads.
template <int kQueries>
constexpr SplitShape scores_shape(std::int64_t queries, std::int64_t key_blocks, std::int64_t dim) {
  const std::int64_t groups = (queries + kQueries - 1) / kQueries;
  std::int64_t most = kSplitGroups<kQueries>;
  while (true) {
    const Shares tiles(groups, most);
    const SplitShape shape{.tiles = tiles.shares, .tile = tiles.largest * kQueries, .groups = tiles.largest};
    if (most == 1 || (shape.tiles * key_blocks >= kEnoughBlocks && shape.shared_bytes(dim) <= kSplitMemory)) {
      return shape;
    }
    most = (most + 1) / 2;
  }
}
/// Of attention_values after scores of that shape.
template <int kQueries>
constexpr SplitShape values_shape(SplitShape scores, std::int64_t dim) {
  scores.groups = Shares(scores.groups * ((dim + kKeyBlock - 1) / kKeyBlock), kSplitGroups<kQueries>).largest;
  return scores;
}

/// Over more blocks of keys than this attention is split: where heads are wide it was faster on an H200 from the second block on. Narrow ones have not been measured.
constexpr std::int64_t key_blocks_together(std::int64_t dim) { return dim >= 128 ? 1 : kKeyBlocksAtOnce; }
/// Whether a block of keys so wide fits a block's memory, with the fewest queries.
constexpr bool can_be_split(std::int64_t dim) { return SplitShape{.tile = 8}.shared_bytes(dim) <= kSplitMemory; }

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
  /// Of the tile, one a thread. Seen by all threads after a barrier.
  template <class Gpu>
  SPECDEC_DEVICE void find(Gpu& gpu, const AttentionParts& parts, std::int32_t tile, const VisibleSlots& visible,
                           TileQuery* found) const {
    for (std::int32_t i = gpu.thread(); i < tile; i += gpu.threads()) {
      TileQuery query;
      if (i < queries) {
        query.row = (first_query + i) / group.heads;
        query.head = group.first + (first_query + i) % group.heads;
        query.part = static_cast<std::int32_t>(parts.at(query.row, query.head, block));
        const std::int64_t seen = visible.count(query.row) - first;
        query.seen = static_cast<std::int32_t>(seen < 0 ? 0 : seen < kKeyBlock ? seen : kKeyBlock);
      }
      found[i] = query;
    }
  }
};

/// Keys or values of a block of keys, which lie side by side: copied to the block's memory.
template <class Gpu>
SPECDEC_DEVICE void bring_block(Gpu& gpu, const float* from, std::int64_t dim, float* to) {
  const int count = static_cast<int>(kKeyBlock * dim);
  SPECDEC_UNROLL_BY(4)
  for (int at = gpu.thread() * 4; at < count; at += gpu.threads() * 4) {
    gpu.copy_once(reinterpret_cast<std::byte*>(to + at), reinterpret_cast<const std::byte*>(from + at));
  }
  gpu.end_of_copies();
}

/// `count` floats of a row, or zeros, to the block's memory, by kKeyBlock threads.
template <class Gpu>
SPECDEC_DEVICE void copy_row(Gpu& gpu, const float* from, int count, bool is, float* to) {
  constexpr int kBytes = sizeof(float);
  for (int i = gpu.thread() % kKeys; i < count; i += kKeys) {
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
  return largest_of_lanes(gpu, largest, lanes);
}

/// A key's scores with kQueries queries, which lie `stride` floats apart: one chain of multiply-adds each, as score_of().
template <int kQueries>
SPECDEC_DEVICE void scores_of(const float* query, int stride, const float* key, int dim, float (&sum)[kQueries]) {
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
  constexpr int kLanes = kKeys / kQueries;  // that look for a query's largest score
  const std::int32_t tile = gpu.threads() / kLanes;
  const KeyBlockWork work(gpu, parts.blocks, tile, visible, groups);
  if (work.queries == 0) {
    return;
  }
  const auto dim = static_cast<int>(kv.shape.head_dim);
  const auto stride = static_cast<int>(SplitShape::padded(dim));
  auto* const keys = reinterpret_cast<float*>(gpu.shared());                  // [dim][kKeyBlock]
  float* const query = keys + kKeyBlock * dim;                                // [tile][stride]
  auto* const queries = reinterpret_cast<TileQuery*>(query + tile * stride);  // [tile]
  float* const scores = reinterpret_cast<float*>(queries + tile);             // [tile][kKeyBlock]
  const int slot = gpu.thread() % kKeys;
  const int group = gpu.thread() / kKeys;
  const int own = group * kQueries;  // the first of this thread's queries
  bring_block(gpu, kv.key(layer, work.source, work.first, 0), dim, keys);
  work.find(gpu, parts, tile, visible, queries);
  gpu.sync();
  for (std::int32_t i = group; i < tile; i += gpu.threads() / kKeys) {
    copy_row(gpu, q.row(queries[i].row) + queries[i].head * dim, dim, i < work.queries, query + i * stride);
  }
  gpu.end_of_copies();
  gpu.template await_copies<0>();
  gpu.sync();
  float sum[kQueries] = {};
  scores_of(query + own * stride, stride, keys + slot, dim, sum);
  SPECDEC_UNROLL
  for (int j = 0; j < kQueries; ++j) {
    const TileQuery& of = queries[own + j];
    const float score = slot < of.seen ? sum[j] * scale : kLowest;
    if (own + j < work.queries) {
      parts.scores[std::int64_t{of.part} * kKeyBlock + slot] = score;
    }
    scores[(own + j) * kKeyBlock + slot] = score;
  }
  gpu.sync();
  const std::int32_t i = gpu.thread() / kLanes;
  const float* const of_query = scores + i * kKeyBlock;
  const float largest = largest_of(gpu, kLanes, kKeyBlock, [&](std::int64_t at) { return of_query[at]; });
  if (i < work.queries && gpu.thread() % kLanes == 0) {
    parts.highest[queries[i].part] = largest;
  }
}

/// One component of the weighted values of a block of keys for kQueries queries: as weigh_values(). kAll: each sees all of the block. Weights lie kKeyBlock apart.
template <bool kAll, int kQueries>
SPECDEC_DEVICE void weigh_block(const float* weights, const TileQuery* queries, const float* values, int dim,
                                float (&to)[kQueries]) {
  float chain[kQueries][4] = {};
  SPECDEC_UNROLL_BY(4)
  for (int s = 0; s < kKeys; s += 4) {
    float value[4];
    SPECDEC_UNROLL
    for (float& of_slot : value) {
      of_slot = *values;
      values += dim;
    }
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      const Four weight = *reinterpret_cast<const Four*>(weights + j * kKeyBlock + s);
      SPECDEC_UNROLL
      for (int c = 0; c < 4; ++c) {
        const float next = elementary::fused(weight.of[c], value[c], chain[j][c]);
        chain[j][c] = kAll || s + c < queries[j].seen ? next : chain[j][c];
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
  const auto dim = static_cast<int>(kv.shape.head_dim);
  auto* const values = reinterpret_cast<float*>(gpu.shared());                     // [kKeyBlock][dim]
  float* const weights = values + kKeyBlock * dim;                                 // [tile][kKeyBlock]
  auto* const queries = reinterpret_cast<TileQuery*>(weights + tile * kKeyBlock);  // [tile]
  float* const largest = reinterpret_cast<float*>(queries + tile);                 // [tile]
  const int component = gpu.thread() % kKeys;
  const int group = gpu.thread() / kKeys;
  const int group_count = gpu.threads() / kKeys;
  if (work.queries > 0) {
    bring_block(gpu, kv.value(layer, work.source, work.first), dim, values);
    work.find(gpu, parts, tile, visible, queries);
  }
  gpu.wait_for_previous();
  if (work.queries == 0) {
    return;
  }
  gpu.sync();
  for (std::int32_t i = group; i < work.queries; i += group_count) {
    copy_row(gpu, parts.scores + std::int64_t{queries[i].part} * kKeyBlock, kKeys, true, weights + i * kKeyBlock);
  }
  gpu.end_of_copies();
  // All lanes of a warp look, with or without a query.
  for (std::int32_t i = gpu.thread() / kRowLanes; i - gpu.thread() / kRowLanes < work.queries;
       i += gpu.threads() / kRowLanes) {
    const bool is = i < work.queries;
    const float* const of_blocks = parts.highest + (is ? queries[i].part - work.block : 0);
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
    weight = component < queries[i].seen ? elementary::exp(weight - largest[i]) : 0;
  }
  gpu.sync();
  for (std::int32_t at = gpu.thread(); at < work.queries * kRowLanes; at += gpu.threads()) {
    const float* const of = weights + at / kRowLanes * kKeyBlock + at % kRowLanes;
    parts.sums[std::int64_t{queries[at / kRowLanes].part} * kRowLanes + at % kRowLanes] =
        (of[0] + of[kRowLanes]) + (of[2 * kRowLanes] + of[3 * kRowLanes]);
  }
  // Each group of threads has kQueries queries and kKeyBlock components of the values.
  const int chunks = (dim + kKeys - 1) / kKeys;
  for (int share = group; share < chunks * (tile / kQueries); share += group_count) {
    const int first = share / chunks * kQueries;
    const int i = share % chunks * kKeys + component;
    if (i >= dim || first >= work.queries) {
      continue;
    }
    bool all = true;
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      all = all && (first + j >= work.queries || queries[first + j].seen == kKeyBlock);
    }
    float weighted[kQueries];
    if (all) {
      weigh_block<true>(weights + first * kKeyBlock, queries + first, values + i, dim, weighted);
    } else {
      weigh_block<false>(weights + first * kKeyBlock, queries + first, values + i, dim, weighted);
    }
    SPECDEC_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      if (queries[first + j].seen > 0) {
        parts.values[std::int64_t{queries[first + j].part} * dim + i] = weighted[j];
      }
    }
  }
}

inline constexpr int kMergeThreads = 128;
/// Blocks of keys that a thread has asked for before it adds the first.
inline constexpr int kMergeLoads = 32;
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
