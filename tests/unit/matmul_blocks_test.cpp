// What no result shows of a product of more rows than go side by side: which weights its blocks of rows ask for while they multiply.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <type_traits>
#include <vector>

#include "backend/cpu/matmul_block.h"

namespace specdec {
namespace {

/// One output of 16, and a record of what is asked for of later groups.
struct Recording : Streams {
  static constexpr int kMaxRows = 4;
  static constexpr int kRegisters = 32;
  static constexpr int kAccRegisters = 2;
  static constexpr int most_panels(int /*rows*/, ReadFrom /*from*/) { return 2; }
  static constexpr int kWeightRegisters = 1;
  static constexpr int kInputRegisters = 1;
  static constexpr std::int64_t kStepInputs = 1;
  static constexpr std::int64_t kInputBytes = 4;
  using Acc = float;
  using Weights = float;
  using Input = float;

  static std::vector<const std::byte*>& later() {
    static std::vector<const std::byte*> lines;
    return lines;
  }
  static std::vector<const std::byte*>& ahead() {
    static std::vector<const std::byte*> lines;
    return lines;
  }
  template <int kInto>
  static void ask_for(const std::byte* line) {
    (kInto == Asks{}.into ? ahead() : later()).push_back(line);
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

/// The same steps with a step of scales after each group.
struct RecordingInt8 : Recording {
  using Dots = float;
  static Dots start(std::int32_t /*start*/) { return 0; }
  static Acc load_scales(const std::byte* from) { return number(from); }
  static Acc add_scaled(Acc sum, Dots dots, float x_scale, Acc scales) { return sum + dots * x_scale * scales; }
};

struct RecordingAlone : Recording {
  static constexpr bool kShareReading = false;
};

/// Four rows of one panel or of one and a half, three of two.
struct RecordingHalves : Recording {
  static constexpr int kAccRegisters = 4;
  static constexpr bool kMayHalve = true;
};

/// Of weights in the cache it asks for those so near, and for inputs, once more.
struct RecordingNear : RecordingAlone {
  static constexpr std::int64_t kNear = 1024;
  static constexpr std::int64_t kInputs = 256;
  static constexpr Asks asks(int /*rows*/, int /*panels*/, ReadFrom from) {
    const bool cached = from != ReadFrom::kMemory;
    return {.ahead = 4096, .into = 2, .near = cached ? kNear : 0, .inputs = cached ? kInputs : 0};
  }
};

/// One panel alone, whose pages' first lines are asked for from far.
struct RecordingPages : RecordingAlone {
  static constexpr int most_panels(int /*rows*/, ReadFrom /*from*/) { return 1; }
  static constexpr Asks asks(int /*rows*/, int /*panels*/, ReadFrom /*from*/) {
    return {.ahead = 4096, .page_starts = 16384};
  }
};

/// Of weights that may be in the cache it loads each line for each row, and once more.
struct RecordingLoads : RecordingAlone {
  static constexpr Asks asks(int rows, int /*panels*/, ReadFrom from) {
    return {.loads = from == ReadFrom::kEither ? rows + 1 : 1};
  }
  static Weights load_anew(const std::byte* from) {
    later().push_back(from);
    return load(from);
  }
};

class MatmulBlocks : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static constexpr std::int64_t kSteps = 1056;  // as many as 1024 of int8 in two slices and their scales
  static constexpr std::int64_t kPanelBytes = kSteps * kStepBytes;
  static constexpr std::int64_t kPanels = 11;
  static constexpr std::int64_t kRoundedUp = 3 * kSteps / kStepBytes;       // a byte a step
  static constexpr std::int64_t kGroup = kCachedWeightBytes / kPanelBytes;  // 3, so that the last one has two

  /// The lines asked for by all blocks of `rows` rows, as distances from the first panel.
  template <class V = Recording>
  std::vector<std::int64_t> asked_by(std::int64_t rows, PanelRun next = {}, ReadFrom read_from = ReadFrom::kCache,
                                     std::int64_t panels = kPanels) {
    const std::int64_t blocks = (rows + Recording::kMaxRows - 1) / Recording::kMaxRows;
    std::vector<float> y(static_cast<std::size_t>(rows * kPanels * kPanelOutputs));
    constexpr bool kInt8 = std::is_same_v<V, RecordingInt8>;
    constexpr std::int64_t kHeaders = kInt8 ? 32 * sizeof(Int8Header) : 0;
    constexpr std::int64_t kStepsOfSlice = kInt8 ? 512 : kSteps / 2;
    constexpr std::int64_t kRowBytes = 2 * kStepsOfSlice * Recording::kInputBytes + kHeaders;
    std::vector<std::byte> x(static_cast<std::size_t>(rows * kRowBytes));
    const std::int64_t slice_steps[] = {kStepsOfSlice, kStepsOfSlice};
    Recording::later().clear();
    Recording::ahead().clear();
    SkinnyMatmul<V>::run({.panels = weights_.data(),
                          .panel_bytes = kPanelBytes,
                          .outputs = kPanels * kPanelOutputs,
                          .slice_steps = slice_steps,
                          .slices = 2,
                          .x = x.data(),
                          .x_bytes = kRowBytes,
                          .rows = rows,
                          .blocks = blocks,
                          .y = y.data(),
                          .y_stride = kPanels * kPanelOutputs,
                          .next = next,
                          .read_from = read_from},
                         0, panels);
    std::vector<std::int64_t> lines;
    for (const std::byte* line : Recording::later()) lines.push_back((line - weights_.data()) / kStepBytes);
    return lines;
  }

  std::vector<std::byte> weights_ = std::vector<std::byte>(2 * kPanels * kPanelBytes);
};

TEST_P(MatmulBlocks, AskTogetherForEachLineOfTheGroupThatComesNext) {
  for (const std::vector<std::int64_t>& asked :
       {asked_by(GetParam()), asked_by<RecordingInt8>(GetParam()), asked_by<RecordingHalves>(GetParam())}) {
    const std::set<std::int64_t> lines(asked.begin(), asked.end());
    for (std::int64_t line = kGroup * kSteps; line < kPanels * kSteps; ++line) {
      ASSERT_TRUE(lines.contains(line)) << "step " << line % kSteps << " of panel " << line / kSteps;
    }
    EXPECT_GE(*lines.begin(), kGroup * kSteps) << "the first group has been asked for before";
    EXPECT_LE(*lines.rbegin(), kPanels * kSteps + kRoundedUp);
  }
}

TEST_P(MatmulBlocks, AskForNothingLaterWhereTheyWouldGainNothing) {
  EXPECT_EQ(asked_by<RecordingAlone>(GetParam()), std::vector<std::int64_t>{});
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

/// But for the first lines of the first two panels, which go side by side; of the next matrix those of its first.
TEST_F(MatmulBlocks, OnesOfHalvesAskForEachLineBeforehand) {
  constexpr std::int64_t kAhead = RecordingHalves::asks(4, 2, ReadFrom::kMemory).ahead / kStepBytes;
  constexpr std::int64_t kFarBehind = 5 * kSteps;
  for (const std::int64_t panels : {9, 11}) {  // three times three, and two alone behind them
    const std::int64_t end = panels * kSteps;
    asked_by<RecordingHalves>(
        4, {.data = weights_.data() + (end + kFarBehind) * kStepBytes, .bytes = kPanelBytes, .count = 1},
        ReadFrom::kMemory, panels);
    std::set<std::int64_t> lines;
    for (const std::byte* line : Recording::ahead()) lines.insert((line - weights_.data()) / kStepBytes);
    for (std::int64_t line = 0; line < end + kAhead; ++line) {
      const bool first = line / kSteps < 2 && line % kSteps < kAhead;
      ASSERT_NE(lines.contains(line < end ? line : line + kFarBehind), first)
          << "step " << line % kSteps << " of panel " << line / kSteps << ", " << panels;
    }
  }
}

TEST_F(MatmulBlocks, OnlyWhatTheCacheHasIsAskedForNearAndWithItsInputs) {
  const auto near = [&](std::int64_t rows, ReadFrom read_from) {
    asked_by<RecordingNear>(rows, {}, read_from);
    return Recording::ahead();
  };
  EXPECT_EQ(near(4, ReadFrom::kMemory).size(), 0U);
  // Each step of two panels side by side, or of one, asks for inputs once: groups of three panels are two and one, the last is two.
  EXPECT_EQ(near(8, ReadFrom::kMemory).size(), (kPanels + 7) * kSteps)
      << "the second block has what the first one read";
  // Each step asks for lines of two panels and then for inputs.
  const std::vector<const std::byte*> asked = near(4, ReadFrom::kCache);
  ASSERT_EQ(asked.size(), (kPanels + 6) * kSteps);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (const std::int64_t panel : {0, 1}) {
      EXPECT_EQ(asked[static_cast<std::size_t>(3 * step + panel)] - weights_.data(),
                panel * kPanelBytes + step * kStepBytes + RecordingNear::kNear);
    }
    EXPECT_EQ(asked[static_cast<std::size_t>(3 * step + 2)] - asked[2], 4 * step * Recording::kInputBytes);
  }
}

TEST_F(MatmulBlocks, OnlyWhatMayBeInTheCacheIsLoadedAsOftenAsAsked) {
  for (const std::int64_t rows : {1, 4, 8}) {
    std::vector<std::int64_t> each;
    for (std::int64_t line = 0; line < kPanels * kSteps; ++line)
      each.insert(each.end(), std::min<std::int64_t>(rows, 4) + 1, line);
    std::vector<std::int64_t> loaded = asked_by<RecordingLoads>(rows, {}, ReadFrom::kEither);
    std::ranges::sort(loaded);
    EXPECT_EQ(loaded, each) << rows << " rows, by their first block";
    EXPECT_EQ(asked_by<RecordingLoads>(rows, {}, ReadFrom::kCache), std::vector<std::int64_t>{});
    EXPECT_EQ(asked_by<RecordingLoads>(rows, {}, ReadFrom::kMemory), std::vector<std::int64_t>{});
  }
}

TEST_F(MatmulBlocks, FirstLinesOfPagesAreAskedForFromFar) {
  constexpr std::int64_t kFar = RecordingPages::asks(4, 1, ReadFrom::kMemory).page_starts;
  const std::byte* const end = weights_.data() + kPanels * kPanelBytes;
  const std::byte* const next = end + 5 * kPanelBytes;
  asked_by<RecordingPages>(4, {.data = next, .bytes = kPanelBytes, .count = 1}, ReadFrom::kMemory);
  std::vector<const std::byte*> expected;
  for (const std::byte* line = weights_.data() + kFar; line < end + kFar; line += kStepBytes) {
    const std::byte* const there = line < end ? line : next + (line - end);
    if (reinterpret_cast<std::uintptr_t>(there) % 4096 < 4 * kStepBytes) expected.push_back(there);
  }
  EXPECT_EQ(Recording::later(), expected);
}

TEST(BlocksOfRows, GoOverAsManyPanelsAtLeastAsGoSideBySide) {
  const auto groups = [](std::int64_t panel_bytes, std::int64_t rows, std::int64_t blocks) {
    std::vector<std::int64_t> ends;
    const auto side_by_side = [](std::int64_t of_block) -> std::int64_t { return of_block <= 8 ? 2 : 1; };
    const MatmulJob job = {.panel_bytes = panel_bytes, .rows = rows, .blocks = blocks};
    for_blocks_of_rows(job, 0, 5, side_by_side, [&](const BlockOfRows& of) {
      if (of.new_next) ends.push_back(of.end);
    });
    return ends;
  };
  using Ends = std::vector<std::int64_t>;
  EXPECT_EQ(groups(kCachedWeightBytes / 4, 16, 2), (Ends{4, 5}));
  EXPECT_EQ(groups(kCachedWeightBytes, 16, 2), (Ends{2, 4, 5})) << "more than the cache keeps of them";
  EXPECT_EQ(groups(kCachedWeightBytes, 17, 2), (Ends{1, 2, 3, 4, 5})) << "of nine rows one goes alone";
  EXPECT_EQ(groups(kCachedWeightBytes, 8, 1), (Ends{5})) << "one block needs no groups";
}

}  // namespace
}  // namespace specdec
