#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/error.h"
#include "backend/int8.h"
#include "backend/reference/reference_backend.h"

namespace specdec {

namespace {

float round_to(DType type, float value) {
  switch (type) {
    case DType::kF16:
      return f16_to_float(float_to_f16(value));
    case DType::kBF16:
      return bf16_to_float(float_to_bf16(value));
    case DType::kF32:
    case DType::kInt8:
      break;
  }
  return value;
}

/// A row in the type of the weights: values, and with int8 integers and the scales of their groups.
struct Rounded {
  std::vector<float> values;  ///< [in]
  std::vector<float> scales;  ///< [groups]
};

/// weights [out, in], rounded to `dtype`
class ReferenceLinear final : public PackedLinear {
 public:
  explicit ReferenceLinear(const LinearSpec& spec)
      : in_(spec.stacked.empty() ? 0 : spec.stacked.front().cols), dtype_(spec.dtype) {
    for (const Range& slice : spec.slices) {
      std::vector<Range>& groups = slices_.emplace_back();
      const std::int64_t most = dtype_ == DType::kInt8 ? kInt8Group : std::max<std::int64_t>(slice.size(), 1);
      for (std::int64_t begin = slice.begin; begin < slice.end; begin += most) {
        groups.push_back({begin, std::min(begin + most, slice.end)});
      }
    }
    for (const WeightView& view : spec.stacked) {
      check(in_ == view.cols, "stacked matrices must have the same number of columns");
      std::vector<float> row(static_cast<std::size_t>(view.cols));
      for (std::int64_t n = 0; n < view.rows; ++n) {
        read_row(view, n, row);
        rows_.push_back(round(row.data()));
      }
    }
  }

  std::int64_t out_features() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t in_features() const override { return in_; }
  std::size_t bytes() const override {
    std::size_t bytes = 0;
    for (const Rounded& row : rows_) {
      bytes += row.values.size() * size_of(dtype_) + row.scales.size() * sizeof(float);
    }
    return bytes;
  }

  Rounded round(const float* row) const {
    Rounded rounded;
    if (dtype_ != DType::kInt8) {
      for (std::int64_t k = 0; k < in_; ++k) {
        rounded.values.push_back(round_to(dtype_, row[k]));
      }
      return rounded;
    }
    std::vector<std::int8_t> integers(static_cast<std::size_t>(in_));
    for (const std::vector<Range>& groups : slices_) {
      for (const Range& group : groups) {
        const auto size = static_cast<std::size_t>(group.size());
        rounded.scales.push_back(quantise_group({row + group.begin, size}, integers.data() + group.begin));
      }
    }
    rounded.values.assign(integers.begin(), integers.end());
    return rounded;
  }

  /// The product of a row that was rounded with output `n`, slice by slice.
  std::vector<float> slice_sums(const Rounded& x, std::int64_t n) const {
    const Rounded& w = rows_[static_cast<std::size_t>(n)];
    std::vector<float> sums;
    std::size_t at = 0;
    for (const std::vector<Range>& groups : slices_) {
      float sum = groups.empty() ? -0.0F : 0.0F;
      for (const Range& group : groups) {
        float products = 0;  // with int8 exact
        for (auto k = static_cast<std::size_t>(group.begin); k < static_cast<std::size_t>(group.end); ++k) {
          products += x.values[k] * w.values[k];
        }
        if (dtype_ == DType::kInt8) {
          sum = std::fma(products * x.scales[at], w.scales[at], sum);
          ++at;
        } else {
          sum = products;
        }
      }
      sums.push_back(sum);
    }
    return sums;
  }

 private:
  std::int64_t in_ = 0;
  DType dtype_;
  std::vector<std::vector<Range>> slices_;  ///< what is summed in one go: groups of int8, else all of a slice
  std::vector<Rounded> rows_;
};

/// Neighbours are added level by level; one without a neighbour goes up as it is. No terms: -0.0, the identity.
float tree_sum(std::vector<float> terms) {
  if (terms.empty()) {
    return -0.0F;
  }
  while (terms.size() > 1) {
    std::vector<float> level;
    for (std::size_t i = 0; i + 1 < terms.size(); i += 2) {
      level.push_back(terms[i] + terms[i + 1]);
    }
    if (terms.size() % 2 == 1) {
      level.push_back(terms.back());
    }
    terms = level;
  }
  return terms[0];
}

}  // namespace

std::unique_ptr<PackedLinear> ReferenceBackend::pack(const LinearSpec& spec) {
  return std::make_unique<ReferenceLinear>(spec);
}

void ReferenceBackend::matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream) {
  const auto& linear = dynamic_cast<const ReferenceLinear&>(weight);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const Rounded row = linear.round(x.row(r));
    for (std::int64_t n = 0; n < linear.out_features(); ++n) {
      y.row(r)[n] = tree_sum(linear.slice_sums(row, n));
    }
  }
}

}  // namespace specdec
