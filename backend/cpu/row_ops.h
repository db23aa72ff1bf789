#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"

namespace specdec {

/// Slots in a block of keys: the unit in which attention cuts and combines them (docs/numerics.md, rule 4).
inline constexpr std::int64_t kKeyBlock = 64;

/// head_dim rounded up to whole lanes: the length of a value row in the cache and of an accumulator.
constexpr std::int64_t padded_head_dim(std::int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// Floats of a block's keys and values.
constexpr std::int64_t key_block_size(std::int64_t head_dim) {
  return kKeyBlock * (head_dim + padded_head_dim(head_dim));
}

/// One query head of one row on its way through the blocks of keys.
struct AttentionQuery {
  const float* q;      ///< [head_dim]
  float* state;        ///< [attention_state_size]: largest score, 16 lanes of the sum of weights, weighted values
  std::int64_t count;  ///< keys of the current block that it sees: its first `count` slots, 1 to kKeyBlock
};

/// Keys and values of the slots of one block, as the cache has them (cpu_kv.h). What lies behind a query's `count` does not matter.
struct AttentionBlock {
  const float* keys;  ///< [head_dim, kKeyBlock], and behind them values [kKeyBlock, padded_head_dim]
  const float* next;  ///< the block that comes after this one, asked for meanwhile; not null
  bool is_first;      ///< of those that follow one another: none came before it to ask for it
  std::int64_t head_dim;

  const float* values() const { return keys + head_dim * kKeyBlock; }
};

constexpr std::int64_t attention_state_size(std::int64_t head_dim) { return 32 + padded_head_dim(head_dim); }

/// Operations whose results products read, of all threads.
struct ResultOps {
  void (*rms_norm)(const float* x, const float* weight, float eps, float* y, std::int64_t cols);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, float* y, std::int64_t cols);
  /// Of `rows` rows, those of gate and up `stride` elements apart.
  void (*silu_mul)(const float* gate, const float* up, std::int64_t stride, float* out, std::int64_t out_stride,
                   std::int64_t rows, std::int64_t cols);
  /// out [head_dim] = weighted values / sum of weights.
  void (*attention_end)(const float* state, std::int64_t head_dim, float* out);
};

/// The operations on one row (attention: on one block of keys), one set of functions for each instruction set. Templates over a lane
/// type (*_inl.h, lanes_*.h) make all of them, so that every instruction set gives the same bits. Raw pointers only: a function of a
/// standard header that were compiled here, out of line, with wider instructions could be the one that the linker keeps for all.
struct RowOps {
  ResultOps kept;
  /// The same, results past this core's caches to memory. Whoever tells other threads of them has _mm_sfence() before.
  ResultOps for_others;

  /// cos, sin [head_dim / 2] of the row's position.
  void (*rope)(float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin);
  void (*gelu_tanh)(float* x, std::int64_t cols);
  void (*add)(float* x, const float* y, std::int64_t cols);

  float (*max)(const float* x, std::int64_t count);
  /// Lowest index at which x == value, or `count`.
  std::int64_t (*find)(const float* x, std::int64_t count, float value);
  double (*sum)(const float* x, std::int64_t count);
  void (*scaled_exp)(const float* x, float temperature, float max_z, float* out, std::int64_t count);
  /// Sum of what scaled_exp gives.
  double (*sum_scaled_exp)(const float* x, float temperature, float max_z, std::int64_t count);

  /// Makes `state` that of a query that has seen no key.
  void (*attention_begin)(float* state, std::int64_t head_dim);
  void (*attention_block)(const AttentionBlock& block, float scale, const AttentionQuery* queries,
                          std::int64_t query_count);
};

/// `isa` must not be above detect_isa().
const RowOps& row_ops(Isa isa);

}  // namespace specdec
