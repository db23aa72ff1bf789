#pragma once

#include <cstdint>

#include "backend/cpu/lanes_inl.h"
#include "backend/elementary.h"

namespace specdec {

template <typename V>
float max_row(const float* x, std::int64_t count) {
  const V lowest(-__builtin_inff());
  V best = lowest;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    best = max(best, select(V::first(left), load<V>(x + i, left), lowest));
  }
  return tree_max(best);
}

template <typename V>
std::int64_t find_row(const float* x, std::int64_t count, float value) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t index = i + find_equal(load<V>(x + i, count - i), value);
    if (index < i + kLanes) {
      return index < count ? index : count;
    }
  }
  return count;
}

template <typename V, typename D>
double sum_row(const float* x, std::int64_t count) {
  D sum;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    sum.add(load<V>(x + i, count - i));
  }
  return sum.total();
}

template <typename V>
V scaled_exp(const V& x, const V& temperature, const V& max_z) {
  return elementary::exp(x / temperature - max_z);
}

template <typename V>
void scaled_exp_row(const float* x, float temperature, float max_z, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    store(scaled_exp(load<V>(x + i, left), V(temperature), V(max_z)), out + i, left);
  }
}

template <typename V, typename D>
double sum_scaled_exp_row(const float* x, float temperature, float max_z, std::int64_t count) {
  D sum;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t left = count - i;
    const V weight = scaled_exp(load<V>(x + i, left), V(temperature), V(max_z));
    sum.add(select(V::first(left), weight, V(0.0F)));
  }
  return sum.total();
}

}  // namespace specdec
