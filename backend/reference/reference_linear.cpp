#include <vector>

#include "backend/error.h"
#include "backend/reference/reference_backend.h"

namespace specdec {

namespace {

float round_to(DType type, float value) {
  switch (type) {
    case DType::kF32:
      return value;
    case DType::kF16:
      return f16_to_float(float_to_f16(value));
    case DType::kBF16:
      return bf16_to_float(float_to_bf16(value));
  }
  return value;
}

/// weights [out, in], rounded to `dtype`
class ReferenceLinear final : public PackedLinear {
 public:
  explicit ReferenceLinear(const LinearSpec& spec) : slices_(spec.slices), dtype_(spec.dtype) {
    for (const WeightView& view : spec.stacked) {
      check(in_ == 0 || in_ == view.cols, "stacked matrices must have the same number of columns");
      in_ = view.cols;
      out_ += view.rows;
      std::vector<float> row(static_cast<std::size_t>(view.cols));
      for (std::int64_t n = 0; n < view.rows; ++n) {
        read_row(view, n, row);
        for (const float w : row) {
          weights_.push_back(round_to(dtype_, w));
        }
      }
    }
  }

  std::int64_t out_features() const override { return out_; }
  std::int64_t in_features() const override { return in_; }
  std::size_t bytes() const override { return weights_.size() * size_of(dtype_); }

  const std::vector<Range>& slices() const { return slices_; }
  float input(float x) const { return round_to(dtype_, x); }
  const float* row(std::int64_t n) const { return weights_.data() + n * in_; }

 private:
  std::int64_t out_ = 0;
  std::int64_t in_ = 0;
  std::vector<Range> slices_;
  DType dtype_;
  std::vector<float> weights_;
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
    for (std::int64_t n = 0; n < linear.out_features(); ++n) {
      std::vector<float> partial;
      for (const Range& slice : linear.slices()) {
        float sum = slice.empty() ? -0.0F : 0.0F;
        for (std::int64_t k = slice.begin; k < slice.end; ++k) {
          sum += linear.input(x.row(r)[k]) * linear.row(n)[k];
        }
        partial.push_back(sum);
      }
      y.row(r)[n] = tree_sum(partial);
    }
  }
}

}  // namespace specdec
