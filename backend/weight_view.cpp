#include "backend/backend.h"

namespace specdec {

void read_row(const WeightView& weight, std::int64_t row, std::span<float> out) {
  const auto cols = static_cast<std::size_t>(weight.cols);
  if (weight.random) {
    const std::int64_t first = row * weight.row_stride;
    if (weight.col_stride == 1) {
      fill_random(*weight.random, first, out.first(cols));
      return;
    }
    for (std::size_t i = 0; i < cols; ++i) {
      out[i] = (*weight.random)[first + static_cast<std::int64_t>(i) * weight.col_stride];
    }
    return;
  }
  const auto size = static_cast<std::int64_t>(size_of(weight.dtype));
  const std::byte* const first = weight.data + row * weight.row_stride * size;
  if (weight.col_stride == 1) {
    load_as_floats(first, weight.dtype, out.first(cols));
    return;
  }
  for (std::size_t i = 0; i < cols; ++i) {
    out[i] = load_as_float(first, weight.dtype, static_cast<std::int64_t>(i) * weight.col_stride);
  }
}

}  // namespace specdec
