#pragma once

#include <cstdint>

#include "backend/cpu/lanes_inl.h"
#include "backend/elementary.h"

namespace specdec {

template <typename V>
void rope_row(float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t head = 0; head < heads; ++head) {
    float* low = x + head * head_dim;
    float* high = low + half;
    for (std::int64_t i = 0; i < half; i += kLanes) {
      const std::int64_t left = half - i;
      const V a = load<V>(low + i, left);
      const V b = load<V>(high + i, left);
      const V c = load<V>(cos + i, left);
      const V s = load<V>(sin + i, left);
      store(fused(-b, s, a * c), low + i, left);
      store(fused(a, s, b * c), high + i, left);
    }
  }
}

template <typename V, Keep kKeep>
void silu_mul_rows(const float* gate, const float* up, std::int64_t stride, float* out, std::int64_t out_stride,
                   std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, gate += stride, up += stride, out += out_stride) {
    for (std::int64_t i = 0; i < cols; i += kLanes) {
      const std::int64_t left = cols - i;
      store<kKeep>(elementary::silu(load<V>(gate + i, left)) * load<V>(up + i, left), out + i, left);
    }
  }
}

template <typename V>
void gelu_tanh_row(float* x, std::int64_t cols) {
  for (std::int64_t i = 0; i < cols; i += kLanes) {
    const std::int64_t left = cols - i;
    store(elementary::gelu_tanh(load<V>(x + i, left)), x + i, left);
  }
}

template <typename V>
void add_row(float* x, const float* y, std::int64_t cols) {
  for (std::int64_t i = 0; i < cols; i += kLanes) {
    const std::int64_t left = cols - i;
    store(load<V>(y + i, left) + load<V>(x + i, left), x + i, left);
  }
}

}  // namespace specdec
