// What no result shows of a product of more rows than go side by side: which weights its blocks of rows ask for while they multiply.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "backend/cpu/matmul_block.h"

namespace specdec {
namespace {

/// One output of 16, and a record of what is asked for of later groups.
struct Recording : Streams {
  static constexpr int kMaxRows = 4;
  static constexpr int kRegisters = 32;
  static constexpr int kAccRegisters = 2;
  static constexpr int most_panels(int /*rows*/, bool /*from_memory*/) { return 2; }
  static constexpr int kWeightRegisters = 1;
  static constexpr int kInputRegisters = 1;
  static constexpr std::int64_t kStepInputs = 1;
  static constexpr std::int64_t kInputBytes = 4;
  static constexpr int kAheadInto = 3;
  using Acc = float;
  using Weights = float;
  using Input = float;

  static std::vector<const std::byte*>& later() {
    static std::vector<const std::byte*> lines;
    return lines;
  }
  template <int kInto>
  static void ask_for(const std::byte* line) {
    if constexpr (kInto != kAheadInto) later().push_back(line);
  }

  static Acc zero() { return 0; }
  static Acc minus_zero() { return -0.0F; }
  static Acc add(Acc a, Acc b) { return a + b; }
  static void store(float* to, Acc acc) { *to = acc; }
  static float number(const std::byte* from) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static Weights load(const std::byte* from) { return number(from); }
  static Input broadcast(const std::byte* from) { return number(from); }
  static Acc multiply_add(Acc acc, Weights weights, Input input) { return acc + weights * input; }
  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    std::memcpy(packed, x, static_cast<std::size_t>(count) * sizeof(float));
  }
};

class MatmulBlocks : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static constexpr std::int64_t kSteps = 1100;
  static constexpr std::int64_t kPanelBytes = kSteps * kStepBytes;
  static constexpr std::int64_t kPanels = 11;
  static constexpr std::int64_t kRoundedUp = 3 * kSteps / kStepBytes;       // a byte a step
  static constexpr std::int64_t kGroup = kCachedWeightBytes / kPanelBytes;  // 3, so that the last one has two

  /// The lines asked for by all blocks of `rows` rows, as distances from the first panel.
  std::vector<std::int64_t> asked_by(std::int64_t rows, PanelRun next = {}) {
    const std::int64_t blocks = (rows + Recording::kMaxRows - 1) / Recording::kMaxRows;
    std::vector<float> y(static_cast<std::size_t>(rows * kPanels * kPanelOutputs));
    std::vector<std::byte> x(static_cast<std::size_t>(rows * kSteps * Recording::kInputBytes));
    const std::int64_t slice_steps[] = {kSteps / 2, kSteps - kSteps / 2};
    Recording::later().clear();
    SkinnyMatmul<Recording>::run({.panels = weights_.data(),
                                  .panel_bytes = kPanelBytes,
                                  .outputs = kPanels * kPanelOutputs,
                                  .slice_steps = slice_steps,
                                  .slices = 2,
                                  .x = x.data(),
                                  .x_bytes = kSteps * Recording::kInputBytes,
                                  .rows = rows,
                                  .blocks = blocks,
                                  .y = y.data(),
                                  .y_stride = kPanels * kPanelOutputs,
                                  .next = next},
                                 0, kPanels);
    std::vector<std::int64_t> lines;
    for (const std::byte* line : Recording::later()) lines.push_back((line - weights_.data()) / kStepBytes);
    return lines;
  }

  std::vector<std::byte> weights_ = std::vector<std::byte>(2 * kPanels * kPanelBytes);
};

TEST_P(MatmulBlocks, AskTogetherForEachLineOfTheGroupThatComesNext) {
  const std::vector<std::int64_t> asked = asked_by(GetParam());
  const std::set<std::int64_t> lines(asked.begin(), asked.end());
  for (std::int64_t line = kGroup * kSteps; line < kPanels * kSteps; ++line) {
    ASSERT_TRUE(lines.contains(line)) << "step " << line % kSteps << " of panel " << line / kSteps;
  }
  EXPECT_GE(*lines.begin(), kGroup * kSteps) << "the first group has been asked for before";
  EXPECT_LE(*lines.rbegin(), kPanels * kSteps + kRoundedUp);
}

TEST_P(MatmulBlocks, AskForTheNextMatrixInTheEnd) {
  // Another matrix of fewer bytes than a group, behind this one.
  const PanelRun next = {.data = weights_.data() + kPanels * kPanelBytes, .bytes = kPanelBytes / 2, .count = 3};
  const std::vector<std::int64_t> asked = asked_by(GetParam(), next);
  const std::set<std::int64_t> lines(asked.begin(), asked.end());
  for (std::int64_t line = kPanels * kSteps; line < kPanels * kSteps + 3 * kSteps / 2; ++line) {
    ASSERT_TRUE(lines.contains(line)) << line;
  }
  EXPECT_LE(*lines.rbegin(), kPanels * kSteps + 3 * kSteps / 2 + kRoundedUp);
}

TEST_P(MatmulBlocks, ShareTheAskingEvenly) {
  const std::int64_t rows = GetParam();
  const std::int64_t blocks = (rows + Recording::kMaxRows - 1) / Recording::kMaxRows;
  const std::vector<std::int64_t> asked = asked_by(rows);
  // In the order of time. Each of the three groups before the last asks as often.
  const std::size_t of_group = asked.size() / 3;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t last =
        asked[of_group * static_cast<std::size_t>(block + 1) / static_cast<std::size_t>(blocks) - 1];
    const std::int64_t share_ends = kGroup * kSteps + kGroup * kSteps * (block + 1) / blocks;
    EXPECT_NEAR(static_cast<double>(last), static_cast<double>(share_ends), 0.02 * kGroup * kSteps) << block;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, MatmulBlocks, ::testing::Values(5, 8, 10, 13), ::testing::PrintToStringParamName());

TEST_F(MatmulBlocks, OneBlockOfRowsAsksForNothingLater) {
  for (std::int64_t rows = 1; rows <= Recording::kMaxRows; ++rows) {
    EXPECT_EQ(asked_by(rows), std::vector<std::int64_t>{}) << rows;
  }
}

}  // namespace
}  // namespace specdec
