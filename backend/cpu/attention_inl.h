#pragma once

#include <cstdint>

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

/// weights[query] = q . K, unscaled; all lanes of the block.
template <typename V, int kQueries>
void attention_scores(const float* keys, std::int64_t head_dim, const AttentionQuery* queries,
                      float (*weights)[kKeyBlock]) {
  V sum[kQueries][kKeyVectors];
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kKeyVectors; ++v) {
      sum[q][v] = V(0.0F);
    }
  }
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const float* key = keys + i * kKeyBlock;
    V k[kKeyVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kKeyVectors; ++v) {
      k[v] = V::load(key + v * kLanes);
    }
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
      const V component(queries[q].q[i]);
#pragma GCC unroll 16
      for (int v = 0; v < kKeyVectors; ++v) {
        sum[q][v] = fused(component, k[v], sum[q][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kKeyVectors; ++v) {
      sum[q][v].store(weights[q] + v * kLanes);
    }
  }
}

/// Turns scores into weights exp(scale * score - largest) and rescales the sum; returns the factor that the values want too.
template <typename V>
V attention_weights(const AttentionQuery& query, float scale, float* weights) {
  const V lowest(-__builtin_inff());
  V score[kKeyVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kKeyVectors; ++v) {
    const std::int64_t left = query.count - v * kLanes;
    score[v] = select(V::first(left < 0 ? 0 : left), V::load(weights + v * kLanes) * V(scale), lowest);
  }
  const float before = query.state[0];
  const float block = tree_max(max(max(score[0], score[1]), max(score[2], score[3])));
  const float largest = before < block ? block : before;
  query.state[0] = largest;
  const V factor = elementary::exp(V(before - largest));
#pragma GCC unroll 16
  for (int v = 0; v < kKeyVectors; ++v) {
    score[v] = elementary::exp(score[v] - V(largest));
    score[v].store(weights + v * kLanes);
  }
  float* sum = query.state + kStateSum;
  fused(V::load(sum), factor, (score[0] + score[1]) + (score[2] + score[3])).store(sum);
  return factor;
}

/// state.values[column ...] = state.values * factor + weights . V, for kVectors vectors of columns and queries that see `count` keys.
template <typename V, int kQueries, int kVectors>
void attention_values(const float* values, std::int64_t stride, std::int64_t column, std::int64_t count,
                      const AttentionQuery* queries, const float (*weights)[kKeyBlock], const V* factors) {
  V sum[kQueries][kValueChains][kVectors];
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int c = 0; c < kValueChains; ++c) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[q][c][v] = V(0.0F);
      }
    }
  }
  const auto take = [&](std::int64_t slot, int chain) __attribute__((always_inline)) {
    V value[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      value[v] = V::load(values + slot * stride + column + v * kLanes);
    }
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
      const V weight(weights[q][slot]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[q][chain][v] = fused(weight, value[v], sum[q][chain][v]);
      }
    }
  };
  std::int64_t slot = 0;
  for (; slot + kValueChains <= count; slot += kValueChains) {
    take(slot, 0);
    take(slot + 1, 1);
    take(slot + 2, 2);
    take(slot + 3, 3);
  }
  if (slot < count) {
    take(slot, 0);
  }
  if (slot + 1 < count) {
    take(slot + 1, 1);
  }
  if (slot + 2 < count) {
    take(slot + 2, 2);
  }
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      float* state = queries[q].state + kStateValues + column + v * kLanes;
      fused(V::load(state), factors[q], (sum[q][0][v] + sum[q][1][v]) + (sum[q][2][v] + sum[q][3][v])).store(state);
    }
  }
}

template <typename V, int kQueries>
void attention_all_columns(const float* values, std::int64_t head_dim, std::int64_t count,
                           const AttentionQuery* queries, const float (*weights)[kKeyBlock], const V* factors) {
  const std::int64_t stride = padded_head_dim(head_dim);
  std::int64_t column = 0;
  for (; column + V::kValueTile * kLanes <= stride; column += V::kValueTile * kLanes) {
    attention_values<V, kQueries, V::kValueTile>(values, stride, column, count, queries, weights, factors);
  }
  for (; column < stride; column += kLanes) {
    attention_values<V, kQueries, 1>(values, stride, column, count, queries, weights, factors);
  }
}

template <typename V, int kQueries>
void attention_tile(const float* keys, const float* values, std::int64_t head_dim, float scale,
                    const AttentionQuery* queries) {
  alignas(64) float weights[kQueries][kKeyBlock];
  V factors[kQueries];
  attention_scores<V, kQueries>(keys, head_dim, queries, weights);
  for (int q = 0; q < kQueries; ++q) {
    factors[q] = attention_weights<V>(queries[q], scale, weights[q]);
  }
  int q = 0;
  if constexpr (kQueries > 1) {
    for (; q + 1 < kQueries; q += 2) {
      if (queries[q].count == queries[q + 1].count) {
        attention_all_columns<V, 2>(values, head_dim, queries[q].count, queries + q, weights + q, factors + q);
      } else {
        attention_all_columns<V, 1>(values, head_dim, queries[q].count, queries + q, weights + q, factors + q);
        attention_all_columns<V, 1>(values, head_dim, queries[q + 1].count, queries + q + 1, weights + q + 1,
                                    factors + q + 1);
      }
    }
  }
  for (; q < kQueries; ++q) {
    attention_all_columns<V, 1>(values, head_dim, queries[q].count, queries + q, weights + q, factors + q);
  }
}

template <typename V>
void attention_block(const float* keys, const float* values, std::int64_t head_dim, float scale,
                     const AttentionQuery* queries, std::int64_t query_count) {
  std::int64_t q = 0;
  if constexpr (V::kQueryTile >= 4) {
    for (; q + 4 <= query_count; q += 4) {
      attention_tile<V, 4>(keys, values, head_dim, scale, queries + q);
    }
    for (; q + 2 <= query_count; q += 2) {
      attention_tile<V, 2>(keys, values, head_dim, scale, queries + q);
    }
  }
  for (; q < query_count; ++q) {
    attention_tile<V, 1>(keys, values, head_dim, scale, queries + q);
  }
}

template <typename V>
void attention_end(const float* state, std::int64_t head_dim, float* out) {
  const V total(tree_sum(V::load(state + kStateSum)));
  for (std::int64_t i = 0; i < head_dim; i += kLanes) {
    store(V::load(state + kStateValues + i) / total, out + i, head_dim - i);
  }
}

}  // namespace specdec
