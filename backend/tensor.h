#pragma once

#include <cstdint>

namespace specdec {

/// Half-open range [begin, end) of indices.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t size() const { return end - begin; }
  constexpr bool empty() const { return end <= begin; }
  constexpr bool contains(std::int64_t i) const { return begin <= i && i < end; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// Non-owning view of activations: row-major [rows, cols], rows `stride` elements apart, in the memory of a Backend.
template <typename T>
struct BasicRows {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  constexpr T* row(std::int64_t i) const { return data + i * stride; }
  /// Rows [begin, begin + count), all columns.
  constexpr BasicRows slice_rows(std::int64_t begin, std::int64_t count) const {
    return {data + begin * stride, count, cols, stride};
  }
  /// All rows, columns [begin, begin + count).
  constexpr BasicRows slice_cols(std::int64_t begin, std::int64_t count) const {
    return {data + begin, rows, count, stride};
  }
  constexpr operator BasicRows<const T>() const {
    return {data, rows, cols, stride};
  }  // NOLINT(google-explicit-constructor)
};

using Rows = BasicRows<float>;
using ConstRows = BasicRows<const float>;

}  // namespace specdec
