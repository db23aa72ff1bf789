#include "backend/cuda/tensor_layout.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "backend/cuda/sum_tree.h"
#include "backend/dtype.h"
#include "backend/error.h"

namespace specdec::cuda {
namespace {

constexpr std::int64_t kLanes = 32;
constexpr std::int64_t kLaneWeights = 8;

/// Where weight (output, input) of a tile lies: lane (output mod 8) * 4 + input / 4, and there the registers of the upper and lower outputs in
/// turn. The instruction would have inputs 2 q, 2 q + 1, 2 q + 8, 2 q + 9 in the q-th of four lanes; which input is called which is ours to say, and with
/// 4 q to 4 q + 3 a lane takes its inputs with one load.
std::int64_t place_in_tile(std::int64_t output, std::int64_t input) {
  const std::int64_t lane = output % 8 * 4 + input / 4;
  const std::int64_t word = output / 8 + input % 4 / 2 * 2;
  return lane * kLaneWeights + word * 2 + input % 2;
}

void read_stacked_row(const LinearSpec& spec, std::int64_t output, std::span<float> row) {
  auto view = spec.stacked.begin();
  for (; output >= view->rows; ++view) {
    output -= view->rows;
  }
  read_row(*view, output, row);
}

}  // namespace

TensorOrder::TensorOrder(const std::vector<Range>& slices) {
  check(!slices.empty(), "a linear layer has at least one slice");
  for (const Range& slice : slices) {
    check(slice.begin == inputs_ && slice.end >= slice.begin,
          "slices cover the inner dimension in order and without gaps");
    inputs_ = slice.end;
    even_ = even_ && slice.size() % kTileInputs == 0;
    for (std::int64_t input = slice.begin; input < slice.end; input += kTileInputs) {
      steps_.push_back(
          {static_cast<std::int32_t>(input), static_cast<std::int32_t>(std::min(kTileInputs, slice.end - input))});
    }
    const std::int64_t count = (slice.size() + kTileInputs - 1) / kTileInputs;
    std::int64_t leaves = 1;
    while (leaves < kMaxLeaves && count > leaves * kLeafSteps) {
      leaves *= 2;
    }
    slices_.emplace_back();
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
      slices_.back().push_back(count * (leaf + 1) / leaves - count * leaf / leaves);
    }
  }
}

TensorCut TensorOrder::cut(int warps) const {
  std::vector<int> counts;
  std::vector<std::int64_t> steps;
  for (const auto& slice : slices_) {
    counts.push_back(static_cast<int>(slice.size()));
    steps.insert(steps.end(), slice.begin(), slice.end());
  }
  const SumTree tree(counts);
  TensorCut cut;
  std::int32_t step = 0;
  for (const SumTree::Part& of : tree.cut(warps, steps)) {
    const std::vector<int> merges = tree.merges_within(of);
    Part part{.first_step = step, .first_leaf = of.first, .leaves = of.leaves, .merges = of.merges};
    for (int i = 0; i < of.leaves; ++i) {
      const auto count = static_cast<std::int32_t>(steps[of.first + i]);
      cut.leaves.push_back({count, merges[i]});
      part.steps += count;
    }
    step += part.steps;
    cut.stack = std::max(cut.stack, stack_depth(merges));
    cut.parts.push_back(part);
  }
  return cut;
}

TensorLayout::TensorLayout(const LinearSpec& spec, Contents contents) : order_(spec.slices) {
  check(spec.dtype != DType::kF32, "tensor cores take bf16 or fp16 weights");
  check(!spec.stacked.empty(), "a linear layer has at least one weight");
  for (const WeightView& view : spec.stacked) {
    check(view.cols == order_.inputs(), "slices cover the columns of each stacked weight");
    outputs_.count += view.rows;
  }
  check(!spec.gated || (spec.stacked.size() == 2 && spec.stacked[0].rows == spec.stacked[1].rows),
        "gates and what they gate are two matrices of one shape");
  outputs_.gated = spec.gated;
  if (contents == Contents::kPacked) {
    fill(spec);
  }
}

void TensorLayout::fill(const LinearSpec& spec) {
  const std::int64_t steps = std::ssize(order_.steps());
  const auto round = spec.dtype == DType::kF16 ? float_to_f16 : float_to_bf16;
  weights_.resize(static_cast<std::size_t>(outputs_.tiles() * steps * kLanes * kLaneWeights));
  std::vector<float> row(static_cast<std::size_t>(order_.inputs()));
  for (std::int64_t place = 0; place < outputs_.tiles() * kTileOutputs; ++place) {
    const std::int64_t output = outputs_.at(place / kTileOutputs, place % kTileOutputs);
    if (output >= outputs_.count) {
      continue;
    }
    read_stacked_row(spec, output, row);
    for (std::int64_t step = 0; step < steps; ++step) {
      const Step& of = order_.steps()[step];
      std::uint16_t* tile = weights_.data() + (place / kTileOutputs * steps + step) * kLanes * kLaneWeights;
      for (std::int64_t i = 0; i < of.inputs; ++i) {
        tile[place_in_tile(place % kTileOutputs, i)] = round(row[of.first_input + i]);
      }
    }
  }
}

}  // namespace specdec::cuda
