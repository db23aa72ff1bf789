#include "tests/support/regrouped_backend.h"

#include <bit>
#include <utility>

#include "parallel/shard_plan.h"

namespace specdec::tests {
namespace {

/// A row-parallel matrix as the ranks would hold it; any other matrix is one part.
class Parts final : public PackedLinear {
 public:
  struct Part {
    Range columns;
    std::unique_ptr<PackedLinear> weight;
  };
  explicit Parts(std::vector<Part> all) : all_(std::move(all)) {}

  const std::vector<Part>& all() const { return all_; }
  std::int64_t out_features() const override { return all_.front().weight->out_features(); }
  std::int64_t in_features() const override { return all_.back().columns.end; }
  std::size_t bytes() const override { return 0; }

 private:
  std::vector<Part> all_;
};

/// terms[0] + ... + terms[count - 1], the left half being the largest power of two of them that leaves something to the right.
float tree(const float* terms, std::size_t count) {
  if (count == 1) {
    return *terms;
  }
  const std::size_t left = std::bit_ceil(count) / 2;
  return tree(terms, left) + tree(terms + left, count - left);
}

}  // namespace

LinearSpec columns_of(const LinearSpec& spec, Range columns, std::vector<Range> slices) {
  LinearSpec part{.stacked = spec.stacked, .slices = std::move(slices), .dtype = spec.dtype};
  for (WeightView& view : part.stacked) {
    view.data += columns.begin * view.col_stride * static_cast<std::int64_t>(size_of(view.dtype));
    view.cols = columns.size();
  }
  return part;
}

std::unique_ptr<PackedLinear> RegroupedBackend::pack(const LinearSpec& spec) {
  std::vector<Parts::Part> parts;
  if (spec.slices.size() != kCanonicalSlices) {
    parts.push_back({{0, spec.stacked.front().cols}, ForwardingBackend::pack(spec)});
    return std::make_unique<Parts>(std::move(parts));
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::vector<Range> owned(spec.slices.begin() + kCanonicalSlices * rank / ranks_,
                                   spec.slices.begin() + kCanonicalSlices * (rank + 1) / ranks_);
    const Range columns{owned.front().begin, owned.back().end};
    std::vector<Range> local;
    local.reserve(owned.size());
    for (const Range& slice : owned) {
      local.push_back({slice.begin - columns.begin, slice.end - columns.begin});
    }
    parts.push_back({columns, ForwardingBackend::pack(columns_of(spec, columns, std::move(local)))});
  }
  return std::make_unique<Parts>(std::move(parts));
}

void RegroupedBackend::matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) {
  const std::vector<Parts::Part>& parts = static_cast<const Parts&>(weight).all();
  if (parts.size() == 1) {
    ForwardingBackend::matmul(*parts.front().weight, x, y, stream);
    return;
  }
  std::vector<float> sums(parts.size() * y.rows * y.cols);  // [rows, outputs, ranks]
  std::vector<float> partial(y.rows * y.cols);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Range columns = parts[rank].columns;
    ForwardingBackend::matmul(*parts[rank].weight, x.slice_cols(columns.begin, columns.size()),
                              {partial.data(), y.rows, y.cols, y.cols}, stream);
    for (std::size_t i = 0; i < partial.size(); ++i) {
      sums[i * parts.size() + rank] = partial[i];
    }
  }
  for (std::int64_t r = 0; r < y.rows; ++r) {
    for (std::int64_t i = 0; i < y.cols; ++i) {
      y.row(r)[i] = tree(&sums[(r * y.cols + i) * parts.size()], parts.size());
    }
  }
}

}  // namespace specdec::tests
