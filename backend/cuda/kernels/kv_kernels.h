#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/row_ops.h"
#include "backend/cuda/kernels/device.h"

namespace specdec::cuda {

/// Keys and values of all layers: keys [layer][head][slot / 64][head_dim][slot % 64], so that the threads of a block of slots read side by
/// side, and values [layer][head][slot][head_dim]. Zero where nothing was written.
struct KvView {
  float* keys = nullptr;
  float* values = nullptr;
  KvShape shape;

  constexpr std::int64_t blocks() const { return (shape.capacity + kKeyBlock - 1) / kKeyBlock; }
  constexpr std::int64_t floats() const {
    return shape.layers * shape.kv_heads * blocks() * kKeyBlock * shape.head_dim;
  }
  constexpr float* key(std::int64_t layer, std::int64_t head, std::int64_t slot, std::int64_t i) const {
    const std::int64_t block = (layer * shape.kv_heads + head) * blocks() + slot / kKeyBlock;
    return keys + (block * shape.head_dim + i) * kKeyBlock + slot % kKeyBlock;
  }
  constexpr float* value(std::int64_t layer, std::int64_t head, std::int64_t slot) const {
    return values + ((layer * shape.kv_heads + head) * blocks() * kKeyBlock + slot) * shape.head_dim;
  }
};

/// One block a row.
template <class Gpu>
SPECDEC_DEVICE void kv_append(Gpu& gpu, KvView kv, std::int64_t layer, const std::int32_t* first_slot, ConstRows keys,
                              ConstRows values) {
  const std::int64_t slot = *first_slot + gpu.block_x();
  for (std::int64_t at = gpu.thread(); at < keys.cols; at += gpu.threads()) {
    const std::int64_t head = at / kv.shape.head_dim;
    const std::int64_t i = at % kv.shape.head_dim;
    *kv.key(layer, head, slot, i) = keys.row(gpu.block_x())[at];
    kv.value(layer, head, slot)[i] = values.row(gpu.block_x())[at];
  }
}

/// One block a layer.
template <class Gpu>
SPECDEC_DEVICE void kv_move(Gpu& gpu, KvView kv, std::int64_t from, std::int64_t to) {
  const std::int64_t layer = gpu.block_x();
  for (std::int64_t at = gpu.thread(); at < kv.shape.kv_heads * kv.shape.head_dim; at += gpu.threads()) {
    const std::int64_t head = at / kv.shape.head_dim;
    const std::int64_t i = at % kv.shape.head_dim;
    *kv.key(layer, head, to, i) = *kv.key(layer, head, from, i);
    kv.value(layer, head, to)[i] = kv.value(layer, head, from)[i];
  }
}

}  // namespace specdec::cuda
