#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

/// Linear layers of random elements in all the forms that models have them in, and the same numbers as bytes.
namespace specdec::tests {

struct RandomLayer {
  std::string name;
  std::vector<WeightView> stacked;
  std::vector<Range> slices;
  DType dtype = DType::kBF16;
  bool gated = false;

  LinearSpec spec() const { return {stacked, slices, dtype, gated}; }
};

inline WeightView random_view(std::uint64_t tensor, std::int64_t first, std::int64_t rows, std::int64_t cols,
                              std::int64_t row_stride, std::int64_t col_stride) {
  return {.rows = rows,
          .cols = cols,
          .row_stride = row_stride,
          .col_stride = col_stride,
          .random = RandomElements{.seed = 9, .tensor = tensor, .first = first, .scale = 1e-5F}};
}

/// Outputs and inputs that fill no tile, shards that begin anywhere, Conv1D's transposed tensors, stacked matrices, empty and odd slices.
inline std::vector<RandomLayer> random_layers(DType dtype) {
  return {
      {"whole", {random_view(1, 0, 40, 64, 64, 1)}, {{0, 64}}, dtype},
      {"a shard of rows and columns", {random_view(1, 3 * 77 + 5, 19, 37, 77, 1)}, {{0, 37}}, dtype},
      {"transposed", {random_view(2, 11, 21, 50, 1, 33)}, {{0, 50}}, dtype},
      {"stacked",
       {random_view(3, 0, 7, 45, 45, 1), random_view(4, 90, 30, 45, 45, 1), random_view(5, 2, 18, 45, 1, 60)},
       {{0, 45}},
       dtype},
      {"gated", {random_view(3, 0, 21, 45, 45, 1), random_view(4, 7, 21, 45, 50, 1)}, {{0, 45}}, dtype, true},
      {"sliced", {random_view(6, 0, 33, 90, 90, 1)}, {{0, 0}, {0, 17}, {17, 17}, {17, 18}, {18, 80}, {80, 90}}, dtype},
      {"no inputs", {random_view(7, 0, 5, 0, 0, 1)}, {{0, 0}, {0, 0}}, dtype},
  };
}

/// The elements of a layer, read one by one into fp32 memory, as a checkpoint would hold them.
class ReadLayer {
 public:
  explicit ReadLayer(const LinearSpec& random) : slices_(random.slices), dtype_(random.dtype), gated_(random.gated) {
    for (const WeightView& view : random.stacked) {
      std::vector<float>& values = values_.emplace_back();
      for (std::int64_t r = 0; r < view.rows; ++r) {
        for (std::int64_t c = 0; c < view.cols; ++c) {
          values.push_back((*view.random)[r * view.row_stride + c * view.col_stride]);
        }
      }
      shapes_.emplace_back(view.rows, view.cols);
    }
  }

  LinearSpec spec() const {
    LinearSpec spec{{}, slices_, dtype_, gated_};
    for (std::size_t i = 0; i < values_.size(); ++i) {
      spec.stacked.push_back({reinterpret_cast<const std::byte*>(values_[i].data()), DType::kF32, shapes_[i].first,
                              shapes_[i].second, shapes_[i].second, 1});
    }
    return spec;
  }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes_;
  std::vector<Range> slices_;
  DType dtype_;
  bool gated_;
};

inline bool same_bytes(const void* a, const void* b, std::size_t count) {
  return std::ranges::equal(std::span(static_cast<const std::byte*>(a), count),
                            std::span(static_cast<const std::byte*>(b), count));
}

}  // namespace specdec::tests
