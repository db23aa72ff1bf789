#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/cuda/tensor_layout.h"
#include "parallel/tree.h"
#include "tests/support/emulated_gpu.h"

/// The product on tensor cores, whose multiply-adds are emulated in an order of their own: what is tested is which weight meets which
/// input, and that the order depends on neither rows nor ranks.
namespace specdec::cuda {
namespace {

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  for (float& value : values) {
    value = normal(engine);
  }
  return values;
}

/// Inputs [begin, end) of a matrix [outputs, stride], with slices counted from there.
LinearSpec spec_of(const std::vector<float>& weights, std::int64_t outputs, std::int64_t stride, Range inputs,
                   std::vector<Range> slices) {
  return {.stacked = {{reinterpret_cast<const std::byte*>(weights.data() + inputs.begin), DType::kF32, outputs,
                       inputs.size(), stride, 1}},
          .slices = std::move(slices),
          .dtype = DType::kBF16};
}

/// [rows, outputs]
std::vector<float> multiply(const TensorLayout& layout, const std::vector<float>& x, std::int64_t stride,
                            std::int64_t rows) {
  const TensorView view{.weights = reinterpret_cast<const Weights8*>(layout.weights().data()),
                        .step = layout.steps().data(),
                        .leaf = layout.leaves().data(),
                        .steps = std::ssize(layout.steps()),
                        .leaves = std::ssize(layout.leaves()),
                        .outputs = layout.outputs()};
  const std::int64_t blocks = (rows + kTensorRows - 1) / kTensorRows;
  std::vector<Inputs4> packed(static_cast<std::size_t>(blocks * view.steps * kPackThreads));
  const ConstRows in{x.data(), rows, layout.inputs(), stride};
  emulate(view.steps, blocks, kPackThreads, 0, [&](EmulatedGpu& gpu) { pack_inputs(gpu, view, in, packed.data()); });
  std::vector<float> out(static_cast<std::size_t>(rows * view.outputs), -1.0F);
  const Rows y{out.data(), rows, view.outputs, view.outputs};
  emulate((view.outputs + kTensorOutputs - 1) / kTensorOutputs, blocks, kTensorThreads, kTensorSharedBytes,
          [&](EmulatedGpu& gpu) { tensor_matmul(gpu, view, packed.data(), y); });
  return out;
}

float rounded(float value) { return bf16_to_float(float_to_bf16(value)); }

TEST(TensorMatmul, EveryWeightMeetsItsInput) {
  struct Case {
    std::int64_t outputs;
    std::int64_t inputs;
    std::int64_t rows;
    std::vector<Range> slices;
  };
  const std::vector<Case> cases = {{16, 16, 1, {{0, 16}}},
                                   {40, 50, 5, {{0, 50}}},
                                   {33, 70, 9, {{0, 3}, {3, 3}, {3, 40}, {40, 70}}},
                                   {17, 600, 16, {{0, 600}}},
                                   {48, 64, 20, {{0, 32}, {32, 64}}}};
  for (const Case& c : cases) {
    const std::vector<float> weights = random_values(c.outputs * c.inputs, 1);
    const std::vector<float> x = random_values(c.rows * c.inputs, 2);
    const TensorLayout layout(spec_of(weights, c.outputs, c.inputs, {0, c.inputs}, c.slices));
    const std::vector<float> y = multiply(layout, x, c.inputs, c.rows);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t n = 0; n < c.outputs; ++n) {
        double exact = 0;
        double magnitude = 0;
        for (std::int64_t k = 0; k < c.inputs; ++k) {
          const double term = double{rounded(weights[n * c.inputs + k])} * double{rounded(x[r * c.inputs + k])};
          exact += term;
          magnitude += std::abs(term);
        }
        // Products of bf16 are exact in fp32; each of the additions rounds once.
        const double bound = static_cast<double>(c.inputs) * 0x1p-24 * magnitude;
        EXPECT_NEAR(y[r * c.outputs + n], exact, bound) << c.inputs << " inputs, row " << r << ", output " << n;
      }
    }
  }
}

TEST(TensorMatmul, ARowDoesNotDependOnThoseBesideIt) {
  constexpr std::int64_t kOutputs = 40;
  constexpr std::int64_t kInputs = 90;
  const std::vector<float> weights = random_values(kOutputs * kInputs, 3);
  const std::vector<float> x = random_values(20 * kInputs, 4);
  const TensorLayout layout(spec_of(weights, kOutputs, kInputs, {0, kInputs}, {{0, 40}, {40, 90}}));
  const std::vector<float> together = multiply(layout, x, kInputs, 20);
  for (const std::int64_t row : {0, 7, 8, 15, 16, 19}) {
    const std::vector<float> alone = multiply(layout, {x.begin() + row * kInputs, x.end()}, kInputs, 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + row * kOutputs)) << row;
  }
}

/// Sums of ranks meet in the canonical tree, as an all-reduce adds them.
TEST(TensorMatmul, RanksAddUpToTheSameBits) {
  constexpr std::int64_t kOutputs = 24;
  constexpr std::int64_t kRows = 3;
  // Unequal slices, one of them empty and one longer than a leaf.
  const std::vector<std::int64_t> ends = {32, 64, 64, 96, 700, 732, 764, 800};
  const std::int64_t inputs = ends.back();
  const std::vector<float> weights = random_values(kOutputs * inputs, 5);
  const std::vector<float> x = random_values(kRows * inputs, 6);
  const auto product = [&](std::size_t first, std::size_t count) {
    const std::int64_t begin = first == 0 ? 0 : ends[first - 1];
    std::vector<Range> slices;
    for (std::size_t s = first; s < first + count; ++s) {
      slices.push_back({(s == 0 ? 0 : ends[s - 1]) - begin, ends[s] - begin});
    }
    const TensorLayout layout(spec_of(weights, kOutputs, inputs, {begin, ends[first + count - 1]}, std::move(slices)));
    return multiply(layout, {x.begin() + begin, x.end()}, inputs, kRows);
  };
  const std::vector<float> whole = product(0, ends.size());
  for (const std::size_t ranks : {2U, 4U, 8U}) {
    const std::size_t share = ends.size() / ranks;
    std::vector<std::vector<float>> parts;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      parts.push_back(product(rank * share, share));
    }
    const std::vector<std::span<const float>> leaves(parts.begin(), parts.end());
    std::vector<float> sum(whole.size());
    specdec::tree_sum(leaves, std::span(sum));
    EXPECT_EQ(sum, whole) << ranks << " ranks";
  }
}

TEST(TensorLayout, LeavesCoverEverySliceInOrder) {
  const std::int64_t inputs = 20'000;
  const std::vector<float> weights(static_cast<std::size_t>(inputs));
  const std::vector<Range> slices = {{0, 16}, {16, 16}, {16, 1000}, {1000, inputs}};
  const TensorLayout layout(spec_of(weights, 1, inputs, {0, inputs}, slices));
  std::size_t slice = 0;
  int leaves = 0;
  std::int32_t step = 0;
  for (const Leaf& leaf : layout.leaves()) {
    EXPECT_EQ(leaf.first_step, step);
    step += leaf.steps;
    ++leaves;
    if (leaf.last_of_slice != 0) {
      EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(leaves))) << slice;
      EXPECT_LE(leaves, TensorLayout::kMaxLeaves);
      const Step& last = layout.steps()[step == 0 ? 0 : step - 1];
      EXPECT_EQ(last.first_input + last.inputs, slices[slice].end);
      leaves = 0;
      ++slice;
    }
  }
  EXPECT_EQ(slice, slices.size());
  EXPECT_EQ(step, std::ssize(layout.steps()));
}

}  // namespace
}  // namespace specdec::cuda
