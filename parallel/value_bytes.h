#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace specdec {

/// One value as what collectives move.
template <typename T>
std::span<std::byte> value_bytes(T& value) {
  static_assert(std::is_trivially_copyable_v<T>, "only what is a plain row of bytes travels");
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace specdec
