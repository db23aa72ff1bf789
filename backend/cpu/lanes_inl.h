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

/// Where a result is kept.
enum class Keep : std::uint8_t { kInCaches, kInMemory };

/// In memory only where the lanes can do that, and a whole line of it.
template <Keep kKeep, typename V>
void store(const V& value, float* to, std::int64_t left) {
  if constexpr (kKeep == Keep::kInMemory && requires { value.store_past_caches(to); }) {
    if (left >= kLanes && reinterpret_cast<std::uintptr_t>(to) % (kLanes * sizeof(float)) == 0) {
      value.store_past_caches(to);
      return;
    }
  }
  store(value, to, left);
}

}  // namespace specdec
