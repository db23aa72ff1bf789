#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/row_ops.h"
#include "backend/host_buffer.h"

namespace specdec {

/// Keys and values in the order in which attention reads them, capacity rounded up to whole blocks:
///   keys   [layers, kv_heads, blocks, head_dim, kKeyBlock]: one vector holds the same component of 16 keys, so scores need no sum
///                                                         across lanes;
///   values [layers, kv_heads, blocks * kKeyBlock, padded_head_dim]: whole vectors, the padding zero.
class CpuKv final : public KvStore {
 public:
  explicit CpuKv(const KvShape& shape);

  const KvShape& shape() const override { return shape_; }

  /// Keys [head_dim, kKeyBlock] of block `block`.
  const float* keys(std::int64_t layer, std::int64_t head, std::int64_t block) const {
    return keys_.floats() + (layer * shape_.kv_heads + head) * keys_per_head_ + block * shape_.head_dim * kKeyBlock;
  }
  /// Values [kKeyBlock, padded_head_dim] of block `block`.
  const float* values(std::int64_t layer, std::int64_t head, std::int64_t block) const {
    return values_.floats() + (layer * shape_.kv_heads + head) * values_per_head_ +
           block * kKeyBlock * padded_head_dim(shape_.head_dim);
  }

  /// Throws kInternal for a slot outside the capacity.
  void append(std::int64_t layer, std::int64_t first_slot, ConstRows keys, ConstRows values);
  void move(std::int64_t from, std::int64_t to);

 private:
  float* key(std::int64_t layer, std::int64_t head, std::int64_t slot);
  float* value(std::int64_t layer, std::int64_t head, std::int64_t slot);

  KvShape shape_;
  std::int64_t keys_per_head_;
  std::int64_t values_per_head_;
  HostBuffer keys_;
  HostBuffer values_;
};

}  // namespace specdec
