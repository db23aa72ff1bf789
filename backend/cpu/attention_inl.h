#pragma once

#include <cstdint>

#include "backend/cpu/attention_ahead.h"
#include "backend/cpu/lanes_inl.h"
#include "backend/cpu/row_ops.h"
#include "backend/elementary.h"

/// Attention over one block of keys, in the online form of softmax (Milakov & Gimelshein 2018; Dao et al. 2022): a query carries the largest
/// score so far, the sum of its weights relative to it and the weighted values; a new block rescales the three.
///
/// A query's bits depend on its own keys only: a score is one chain over head_dim in the lane of its slot; the weights of a block are
/// summed by slot mod 16; values by slot mod 4 and then in a tree. How many queries share a block (the template arguments)
/// decides only what is read once for several.
namespace specdec {

inline constexpr int kKeyVectors = kKeyBlock / kLanes;
/// Chains of multiply-adds that one value sum is cut into, so that a single query is not bound by their latency.
inline constexpr int kValueChains = 4;

inline constexpr std::int64_t kStateSum = kLanes;  ///< after the largest score, alone on its line
inline constexpr std::int64_t kStateValues = 2 * kLanes;

template <typename V>
void attention_begin(float* state, std::int64_t head_dim) {
  state[0] = -__builtin_inff();
  for (std::int64_t i = kStateSum; i < kStateValues + padded_head_dim(head_dim); i += kLanes) {
    V(0.0F).store(state + i);
  }
}

/// Of `seen` vectors of keys those that a tile of queries takes at a time: as large a part, all parts being equal, as leaves its sums in registers beside the keys
/// and one component of a query.
template <typename V>
constexpr int score_vectors(int queries, int seen) {
  int vectors = seen;
  while (vectors > 1 && queries * vectors + (queries > 1 ? vectors : 0) + 1 > V::kRegisters) {
    vectors = vectors % 2 == 0 ? vectors / 2 : 1;
  }
  return vectors;
}

/// The same for chains of values, beside one slot's values and one weight.
template <typename V>
constexpr int value_chains(int queries, int vectors) {
  int chains = kValueChains;
  while (chains > 1 && queries * chains * vectors + vectors + 1 > V::kRegisters) {
    chains /= 2;
  }
  return chains;
}

/// Of a block, the slots that the queries with the fewest and the most of them see.
struct Seen {
  std::int64_t fewest;
  std::int64_t most;
};

template <int kQueries>
Seen seen_by(const AttentionQuery* queries) {
  Seen seen = {queries[0].count, queries[0].count};
#pragma GCC unroll 16
  for (int q = 1; q < kQueries; ++q) {
    seen.fewest = seen.fewest < queries[q].count ? seen.fewest : queries[q].count;
    seen.most = seen.most < queries[q].count ? queries[q].count : seen.most;
  }
  return seen;
}

/// weights[query] = q . K, unscaled, of the first kSeen vectors of slots.
template <typename V, int kQueries, int kSeen, typename Asking>
void attention_scores(const AttentionBlock& block, Asking ahead, const AttentionQuery* queries,
                      float (*weights)[kKeyBlock]) {
  constexpr int kVectors = score_vectors<V>(kQueries, kSeen);
  for (std::int64_t slot = 0; slot < kSeen * kLanes; slot += kVectors * kLanes) {
    V sum[kQueries][kVectors];
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[q][v] = V(0.0F);
      }
    }
    for (std::int64_t i = 0; i < block.head_dim; ++i) {
      const float* key = block.keys + i * kKeyBlock + slot;
      V k[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        k[v] = V::load(key + v * kLanes);
        ahead.ask();
      }
#pragma GCC unroll 16
      for (int q = 0; q < kQueries; ++q) {
        const V component(queries[q].q[i]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          sum[q][v] = fused(component, k[v], sum[q][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[q][v].store(weights[q] + slot + v * kLanes);
      }
    }
  }
}

/// A block's vectors by a tree of neighbours; one that no query sees would change nothing, its scores being the lowest and its weights zero.
template <int kSeen, typename V, typename Merge>
V merge(const V (&of)[kSeen], const Merge& two) {
  static_assert(1 <= kSeen && kSeen <= 4);
  if constexpr (kSeen == 1) return of[0];
  if constexpr (kSeen == 2) return two(of[0], of[1]);
  if constexpr (kSeen == 3) return two(two(of[0], of[1]), of[2]);
  if constexpr (kSeen == 4) return two(two(of[0], of[1]), two(of[2], of[3]));
}

/// Turns scores into weights exp(scale * score - largest) and rescales the sums; factors[query] is what the values want too.
template <typename V, int kQueries, int kSeen>
void attention_weights(const AttentionQuery* queries, float scale, float (*weights)[kKeyBlock], float* factors) {
  static_assert(kQueries <= kLanes);
  const V lowest(-__builtin_inff());
  V score[kQueries][kSeen];
  float largest[kQueries];
  V(0.0F).store(factors);
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kSeen; ++v) {
      const std::int64_t left = queries[q].count - v * kLanes;
      score[q][v] = select(V::first(left < 0 ? 0 : left), V::load(weights[q] + v * kLanes) * V(scale), lowest);
    }
    const float before = queries[q].state[0];
    const float block = tree_max(merge<kSeen>(score[q], [](V a, V b) { return max(a, b); }));
    largest[q] = before < block ? block : before;
    queries[q].state[0] = largest[q];
    factors[q] = before - largest[q];
  }
  // One query's would have to be read back from where it was just stored.
  elementary::exp(kQueries == 1 ? V(factors[0]) : V::load(factors)).store(factors);
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kSeen; ++v) {
      score[q][v] = elementary::exp(score[q][v] - V(largest[q]));
      score[q][v].store(weights[q] + v * kLanes);
    }
    float* sum = queries[q].state + kStateSum;
    fused(V::load(sum), V(factors[q]), merge<kSeen>(score[q], [](V a, V b) { return a + b; })).store(sum);
  }
}

/// sums[query][chain] = weights . V over the slots chain, chain + 4, chain + 8, ... that the query sees, for kChains chains. Always inlined: a
/// call would send the sums of a single query through memory.
template <typename V, int kQueries, int kChains, int kVectors, typename Asking>
__attribute__((always_inline)) inline void attention_value_chains(const float* values, Asking& running,
                                                                  std::int64_t stride, int first_chain, Seen seen,
                                                                  const AttentionQuery* queries,
                                                                  const float (*weights)[kKeyBlock],
                                                                  V (*sums)[kValueChains][kVectors]) {
  V sum[kQueries][kChains][kVectors];
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[q][c][v] = V(0.0F);
      }
    }
  }
  Asking ahead = running;  // in a register: through a reference each step would be stored
  std::int64_t slot = first_chain;
  for (; slot - first_chain + kValueChains <= seen.fewest; slot += kValueChains) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      V value[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        value[v] = V::load(values + (slot + c) * stride + v * kLanes);
        ahead.ask();
      }
#pragma GCC unroll 16
      for (int q = 0; q < kQueries; ++q) {
        const V weight(weights[q][slot + c]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          sum[q][c][v] = fused(weight, value[v], sum[q][c][v]);
        }
      }
    }
  }
  running = ahead;
  // Slots that some queries see: a sum stays as it is, whatever lies there, and adding a weight of zero would not do.
  for (; slot < seen.most; slot += kValueChains) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 16
      for (int q = 0; q < kQueries; ++q) {
        const V weight(weights[q][slot + c]);
        const auto mask = V::first(slot + c < queries[q].count ? kLanes : 0);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const V value = V::load(values + (slot + c) * stride + v * kLanes);
          sum[q][c][v] = select(mask, fused(weight, value, sum[q][c][v]), sum[q][c][v]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums[q][first_chain + c][v] = sum[q][c][v];
      }
    }
  }
}

/// state.values[column ...] = state.values * factor + weights . V, for kVectors vectors of columns.
template <typename V, int kQueries, int kVectors, typename Asking>
void attention_values(const AttentionBlock& block, Asking& ahead, std::int64_t stride, std::int64_t column, Seen seen,
                      const AttentionQuery* queries, const float (*weights)[kKeyBlock], const float* factors) {
  constexpr int kChains = value_chains<V>(kQueries, kVectors);
  V sum[kQueries][kValueChains][kVectors];
#pragma GCC unroll 16
  for (int chain = 0; chain < kValueChains; chain += kChains) {
    attention_value_chains<V, kQueries, kChains, kVectors>(block.values() + column, ahead, stride, chain, seen, queries,
                                                           weights, sum);
  }
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      float* state = queries[q].state + kStateValues + column + v * kLanes;
      fused(V::load(state), V(factors[q]), (sum[q][0][v] + sum[q][1][v]) + (sum[q][2][v] + sum[q][3][v])).store(state);
    }
  }
}

/// Of the block's vectors the first kSeen, which are those that the query with `seen.most` sees.
template <typename V, int kQueries, int kSeen = kKeyVectors>
void attention_tile(const AttentionBlock& block, TileOf tile, float scale, Seen seen, const AttentionQuery* queries) {
  if constexpr (kSeen > 1) {
    if (seen.most <= (kSeen - 1) * kLanes) {
      attention_tile<V, kQueries, kSeen - 1>(block, tile, scale, seen, queries);
      return;
    }
  }
  alignas(64) float weights[kQueries][kKeyBlock];
  alignas(64) float factors[kLanes];
  const std::int64_t stride = padded_head_dim(block.head_dim);
  // Of several tiles none is so small, and together they have the time to ask.
  static_assert(V::kMostUnasked < (V::kQueryTile + 1) / 2);
  constexpr bool kAsks = kQueries > V::kMostUnasked;
  attention_scores<V, kQueries, kSeen>(block, asking<kAsks>(tile.with_keys(block, kSeen * kLanes)), queries, weights);
  attention_weights<V, kQueries, kSeen>(queries, scale, weights, factors);
  auto ahead = asking<kAsks>(tile.with_values(block, seen.most));
  std::int64_t column = 0;
  for (; column + V::kValueTile * kLanes <= stride; column += V::kValueTile * kLanes) {
    attention_values<V, kQueries, V::kValueTile>(block, ahead, stride, column, seen, queries, weights, factors);
  }
  for (; column < stride; column += kLanes) {
    attention_values<V, kQueries, 1>(block, ahead, stride, column, seen, queries, weights, factors);
  }
}

/// One tile of 1 to kMost queries.
template <typename V, int kMost>
void attention_tile_of(std::int64_t count, const AttentionBlock& block, TileOf tile, float scale,
                       const AttentionQuery* queries) {
  if constexpr (kMost > 1) {
    if (count < kMost) {
      attention_tile_of<V, kMost - 1>(count, block, tile, scale, queries);
      return;
    }
  }
  attention_tile<V, kMost>(block, tile, scale, seen_by<kMost>(queries), queries);
}

template <typename V>
void attention_block(const AttentionBlock& block, float scale, const AttentionQuery* queries,
                     std::int64_t query_count) {
  // As few tiles as can be, and these as even as can be: nine queries are five and four, not six and three.
  const std::int64_t tiles = (query_count + V::kQueryTile - 1) / V::kQueryTile;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t left = tiles - tile;
    const std::int64_t count = (query_count + left - 1) / left;
    attention_tile_of<V, V::kQueryTile>(count, block, {tile, tiles}, scale, queries);
    queries += count;
    query_count -= count;
  }
}

template <typename V, Keep kKeep>
void attention_end(const float* state, std::int64_t head_dim, float* out) {
  const V total(tree_sum(V::load(state + kStateSum)));
  for (std::int64_t i = 0; i < head_dim; i += kLanes) {
    store<kKeep>(V::load(state + kStateValues + i) / total, out + i, head_dim - i);
  }
}

}  // namespace specdec
