#pragma once

#include <cstdint>

/// Loads and stores of a row in steps of 16 lanes. The last, partial step goes through the same loop body as the others, so an element's
/// bits do not depend on where the row ends (docs/numerics.md, rule 5).
namespace specdec {

inline constexpr std::int64_t kLanes = 16;

template <typename V>
V load(const float* from, std::int64_t left) {
  return left >= kLanes ? V::load(from) : V::load_first(from, left);
}

template <typename V>
void store(const V& value, float* to, std::int64_t left) {
  if (left >= kLanes) {
    value.store(to);
  } else {
    value.store_first(to, left);
  }
}

}  // namespace specdec
