#include "backend/cuda/tensor_layout.h"

#include <algorithm>
#include <cstddef>

#include "backend/dtype.h"
#include "backend/error.h"

namespace specdec::cuda {
namespace {

constexpr std::int64_t kLanes = 32;
constexpr std::int64_t kLaneWeights = 8;

/// Where weight (output, input) of a tile lies: lane (output mod 8) * 4 + (input mod 8) / 2, and there the registers of the upper and lower
/// outputs in turn, of the lower inputs first.
std::int64_t place_in_tile(std::int64_t output, std::int64_t input) {
  const std::int64_t lane = output % 8 * 4 + input % 8 / 2;
  const std::int64_t word = output / 8 + input / 8 * 2;
  return lane * kLaneWeights + word * 2 + input % 2;
}

}  // namespace

TensorLayout::TensorLayout(const LinearSpec& spec, Contents contents) {
  check(spec.dtype == DType::kBF16, "tensor cores take bf16 weights");
  check(!spec.stacked.empty(), "a linear layer has at least one weight");
  inputs_ = spec.stacked.front().cols;
  for (const WeightView& view : spec.stacked) {
    check(view.cols == inputs_, "stacked weights have the same number of columns");
    outputs_ += view.rows;
  }
  cut(spec.slices);
  if (contents == Contents::kPacked) {
    fill(spec);
  }
}

void TensorLayout::cut(const std::vector<Range>& slices) {
  std::int64_t end = 0;
  for (const Range& slice : slices) {
    check(slice.begin == end && slice.end >= slice.begin, "slices cover the inner dimension in order and without gaps");
    end = slice.end;
    const auto first = static_cast<std::int64_t>(steps_.size());
    for (std::int64_t input = slice.begin; input < slice.end; input += kTileInputs) {
      steps_.push_back(
          {static_cast<std::int32_t>(input), static_cast<std::int32_t>(std::min(kTileInputs, slice.end - input))});
    }
    const std::int64_t count = static_cast<std::int64_t>(steps_.size()) - first;
    std::int64_t leaves = 1;
    while (leaves < kMaxLeaves && count > leaves * kLeafSteps) {
      leaves *= 2;
    }
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
      const std::int64_t begin = count * leaf / leaves;
      leaves_.push_back({static_cast<std::int32_t>(first + begin),
                         static_cast<std::int32_t>(count * (leaf + 1) / leaves - begin), leaf + 1 == leaves ? 1 : 0});
    }
  }
  check(end == inputs_, "slices cover the whole inner dimension");
}

void TensorLayout::fill(const LinearSpec& spec) {
  const auto steps = static_cast<std::int64_t>(steps_.size());
  weights_.resize(static_cast<std::size_t>(tiles() * steps * kLanes * kLaneWeights));
  std::vector<float> row(static_cast<std::size_t>(inputs_));
  std::int64_t output = 0;
  for (const WeightView& view : spec.stacked) {
    for (std::int64_t r = 0; r < view.rows; ++r, ++output) {
      read_row(view, r, row);
      for (std::int64_t step = 0; step < steps; ++step) {
        const Step& of = steps_[step];
        std::uint16_t* tile = weights_.data() + (output / kTileOutputs * steps + step) * kLanes * kLaneWeights;
        for (std::int64_t i = 0; i < of.inputs; ++i) {
          tile[place_in_tile(output % kTileOutputs, i)] = float_to_bf16(row[of.first_input + i]);
        }
      }
    }
  }
}

}  // namespace specdec::cuda
