#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace specdec::tests {

/// Whether two vectors are the same bytes: a zero's sign counts, and a NaN is its own equal.
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

}  // namespace specdec::tests
