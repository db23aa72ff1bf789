#include "backend/backend.h"

namespace specdec {

void read_row(const WeightView& weight, std::int64_t row, std::span<float> out) {
  const auto size = static_cast<std::int64_t>(size_of(weight.dtype));
  const std::byte* const first = weight.data + row * weight.row_stride * size;
  if (weight.col_stride == 1) {
    load_as_floats(first, weight.dtype, out.first(static_cast<std::size_t>(weight.cols)));
    return;
  }
  for (std::int64_t i = 0; i < weight.cols; ++i) {
    out[static_cast<std::size_t>(i)] = load_as_float(first, weight.dtype, i * weight.col_stride);
  }
}

}  // namespace specdec
