#pragma once

#include <cstdint>

#include "backend/cpu/lanes_inl.h"

namespace specdec {

/// Element i of a row is summed in lane i mod 16, in order; then the lanes in their fixed tree.
template <typename V, Keep kKeep>
void rms_norm_row(const float* x, const float* weight, float eps, float* y, std::int64_t cols) {
  V squares(0.0F);
  for (std::int64_t i = 0; i < cols; i += kLanes) {
    const V v = load<V>(x + i, cols - i);
    squares = fused(v, v, squares);
  }
  const V inverse(1.0F / __builtin_sqrtf(tree_sum(squares) / static_cast<float>(cols) + eps));
  for (std::int64_t i = 0; i < cols; i += kLanes) {
    const std::int64_t left = cols - i;
    store<kKeep>(load<V>(x + i, left) * inverse * load<V>(weight + i, left), y + i, left);
  }
}

template <typename V, Keep kKeep>
void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* y, std::int64_t cols) {
  V sum(0.0F);
  for (std::int64_t i = 0; i < cols; i += kLanes) {
    sum = sum + load<V>(x + i, cols - i);
  }
  const V mean(tree_sum(sum) / static_cast<float>(cols));
  V squares(0.0F);
  for (std::int64_t i = 0; i < cols; i += kLanes) {
    const std::int64_t left = cols - i;
    const V centred = select(V::first(left), load<V>(x + i, left) - mean, V(0.0F));
    squares = fused(centred, centred, squares);
  }
  const V inverse(1.0F / __builtin_sqrtf(tree_sum(squares) / static_cast<float>(cols) + eps));
  for (std::int64_t i = 0; i < cols; i += kLanes) {
    const std::int64_t left = cols - i;
    const V normal = (load<V>(x + i, left) - mean) * inverse;
    store<kKeep>(fused(normal, load<V>(weight + i, left), load<V>(bias + i, left)), y + i, left);
  }
}

}  // namespace specdec
