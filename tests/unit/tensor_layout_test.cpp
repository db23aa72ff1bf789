#include "backend/cuda/tensor_layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

namespace specdec::cuda {
namespace {

TEST(TensorLayout, LeavesCoverEverySliceInOrder) {
  const std::int64_t inputs = 20'000;
  const std::vector<float> weights(static_cast<std::size_t>(inputs));
  const std::vector<Range> slices = {{0, 16}, {16, 16}, {16, 1000}, {1000, inputs}};
  const TensorLayout layout(
      {.stacked = {{reinterpret_cast<const std::byte*>(weights.data()), DType::kF32, 1, inputs, inputs, 1}},
       .slices = slices,
       .dtype = DType::kBF16});
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
