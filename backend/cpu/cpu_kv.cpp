#include "backend/cpu/cpu_kv.h"

#include <algorithm>

#include "backend/error.h"

namespace specdec {

namespace {

std::size_t bytes_of(const KvShape& shape) {
  const std::int64_t blocks = (shape.capacity + kKeyBlock - 1) / kKeyBlock;
  return static_cast<std::size_t>(blocks * shape.layers * shape.kv_heads * key_block_size(shape.head_dim)) *
         sizeof(float);
}

}  // namespace

CpuKv::CpuKv(const KvShape& shape) : shape_(shape), memory_(bytes_of(shape), AlignedArray::Fill::kZeroWhenTouched) {}

float* CpuKv::key(std::int64_t layer, std::int64_t head, std::int64_t slot) {
  return const_cast<float*>(keys(layer, head, slot / kKeyBlock)) + slot % kKeyBlock;
}

float* CpuKv::value(std::int64_t layer, std::int64_t head, std::int64_t slot) {
  return const_cast<float*>(values(layer, head, slot / kKeyBlock)) +
         slot % kKeyBlock * padded_head_dim(shape_.head_dim);
}

void CpuKv::check_slots(std::int64_t first_slot, std::int64_t rows) const {
  check(first_slot >= 0 && first_slot + rows <= shape_.capacity, "appended rows do not fit the KV store");
}

void CpuKv::append(std::int64_t layer, std::int64_t first_slot, ConstRows keys, ConstRows values) {
  append_keys(layer, first_slot, keys, {0, shape_.kv_heads});
  append_values(layer, first_slot, values, {0, shape_.kv_heads});
}

void CpuKv::append_keys(std::int64_t layer, std::int64_t first_slot, ConstRows keys, Range heads) {
  check_slots(first_slot, keys.rows);
  const std::int64_t dim = shape_.head_dim;
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    for (std::int64_t begin = 0; begin < keys.rows;) {
      const std::int64_t slot = first_slot + begin;
      const std::int64_t end = std::min(keys.rows, begin + kKeyBlock - slot % kKeyBlock);
      float* to = key(layer, head, slot);
      // All rows of a component in turn: they share a cache line, which is seldom at hand.
      for (std::int64_t i = 0; i < dim; ++i) {
        const float* from = keys.row(begin) + head * dim + i;
        for (std::int64_t r = begin; r < end; ++r, from += keys.stride) {
          to[i * kKeyBlock + r - begin] = *from;
        }
      }
      begin = end;
    }
  }
}

void CpuKv::append_values(std::int64_t layer, std::int64_t first_slot, ConstRows values, Range heads) {
  check_slots(first_slot, values.rows);
  const std::int64_t dim = shape_.head_dim;
  for (std::int64_t head = heads.begin; head < heads.end; ++head) {
    for (std::int64_t r = 0; r < values.rows; ++r) {
      std::copy_n(values.row(r) + head * dim, dim, value(layer, head, first_slot + r));
    }
  }
}

void CpuKv::move(std::int64_t from, std::int64_t to) {
  check(0 <= from && from < shape_.capacity && 0 <= to && to < shape_.capacity, "moved slot outside the KV store");
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      const float* source = key(layer, head, from);
      float* target = key(layer, head, to);
      for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
        target[i * kKeyBlock] = source[i * kKeyBlock];
      }
      std::copy_n(value(layer, head, from), shape_.head_dim, value(layer, head, to));
    }
  }
}

}  // namespace specdec
