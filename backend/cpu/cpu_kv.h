#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/aligned_array.h"
#include "backend/cpu/row_ops.h"

namespace specdec {

/// Keys and values in the order in which attention reads them, [blocks, layers, kv_heads] of
///   keys   [head_dim, kKeyBlock]: one vector holds the same component of 16 keys, so scores need no sum across lanes;
///   values [kKeyBlock, padded_head_dim]: whole vectors, the padding zero.
/// What a sequence has is at the front, on huge pages, however long it might become: with heads first each would touch pages of its own.
class CpuKv final : public KvStore {
 public:
  explicit CpuKv(const KvShape& shape);

  const KvShape& shape() const override { return shape_; }

  /// Keys [head_dim, kKeyBlock] of block `block`.
  const float* keys(std::int64_t layer, std::int64_t head, std::int64_t block) const {
    return floats() + ((block * shape_.layers + layer) * shape_.kv_heads + head) * key_block_size(shape_.head_dim);
  }
  /// Values [kKeyBlock, padded_head_dim] of block `block`, behind its keys.
  const float* values(std::int64_t layer, std::int64_t head, std::int64_t block) const {
    return keys(layer, head, block) + shape_.head_dim * kKeyBlock;
  }

  /// Throws kInternal for a slot outside the capacity.
  void append(std::int64_t layer, std::int64_t first_slot, ConstRows keys, ConstRows values);
  /// Of some heads, for threads that share them.
  void append_keys(std::int64_t layer, std::int64_t first_slot, ConstRows keys, Range heads);
  void append_values(std::int64_t layer, std::int64_t first_slot, ConstRows values, Range heads);
  void move(std::int64_t from, std::int64_t to);

 private:
  void check_slots(std::int64_t first_slot, std::int64_t rows) const;
  const float* floats() const { return reinterpret_cast<const float*>(memory_.data()); }
  float* key(std::int64_t layer, std::int64_t head, std::int64_t slot);
  float* value(std::int64_t layer, std::int64_t head, std::int64_t slot);

  KvShape shape_;
  AlignedArray memory_;
};

}  // namespace specdec
