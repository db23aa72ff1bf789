// What no result shows of the kernel for tiles: what it reads, how often, and what it asks for in time. On emulated tiles.
#include "backend/cpu/matmul_tiles.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/unit/matmul_cases.h"

namespace specdec {
namespace {

using matmul_test::multiply_once;
using matmul_test::random_floats;
using matmul_test::slices_ending_at;
using matmul_test::Weight;
using tests::EmulatedTiles;

class MatmulTiles : public ::testing::Test {
 protected:
  using Access = EmulatedTiles::Access;

  static constexpr std::int64_t kIn = 4000;  // 125 tiles a panel, one slice in two odd
  static constexpr std::int64_t kOut = 16 * 13 - 3;
  static constexpr std::int64_t kTileBytes = 1024;

  std::vector<Access> accesses_of(std::int64_t rows) {
    std::vector<Access> accesses;
    EmulatedTiles::trace() = &accesses;
    multiply_once(packed_, x_.data(), rows, 1, std::nullopt);
    EmulatedTiles::trace() = nullptr;
    return accesses;
  }

  bool is_weight(const std::byte* from) const {
    return from >= packed_.panels() && from < packed_.panels() + packed_.bytes();
  }

  const Weight weight_{kOut, kIn, 1, slices_ending_at({33, 2000, 2000, 4000})};
  const CpuPackedLinear packed_{weight_.spec(DType::kBF16), tests::kMatmulEmulatedTiles};
  const std::vector<float> x_ = random_floats(std::size_t{64} * kIn, 2);
};

TEST_F(MatmulTiles, APanelIsARunOfWholeTiles) {
  EXPECT_EQ(packed_.panel_bytes() % kTileBytes, 0);
  EXPECT_EQ(packed_.panel_bytes() / kTileBytes, 2 + 62 + 63);
  EXPECT_EQ(packed_.slice_steps()[2], 0);
}

TEST_F(MatmulTiles, EachWeightIsReadOnceForEachBlockOfRows) {
  for (const auto& [rows, blocks] : {std::pair{1, 1}, {5, 1}, {16, 1}, {17, 1}, {32, 1}, {33, 2}, {64, 2}}) {
    std::map<const std::byte*, int> reads;
    for (const Access& access : accesses_of(rows)) {
      if (!access.prefetched && is_weight(access.from)) {
        ++reads[access.from];
      }
    }
    ASSERT_EQ(static_cast<std::int64_t>(reads.size()), packed_.panel_count() * packed_.panel_bytes() / kTileBytes);
    for (const auto& [from, count] : reads) {
      ASSERT_EQ((from - packed_.panels()) % kTileBytes, 0);
      ASSERT_EQ(count, blocks) << rows << " rows";
    }
  }
}

/// But for the first tiles of the panels that come first, nothing is read that was not asked for; and nothing else is asked for.
TEST_F(MatmulTiles, WeightsAreAskedForBeforeTheyAreRead) {
  for (const auto& [rows, side_by_side] : {std::pair{1, 2}, {8, 2}, {9, 4}, {16, 4}, {17, 2}, {64, 2}}) {
    std::set<const std::byte*> asked;
    std::set<const std::byte*> read;
    std::set<std::int64_t> late;
    for (const Access& access : accesses_of(rows)) {
      if (access.prefetched) {
        ASSERT_TRUE(is_weight(access.from)) << rows << " rows";
        asked.insert(access.from);
      } else if (is_weight(access.from) && read.insert(access.from).second && !asked.contains(access.from)) {
        late.insert(access.from - packed_.panels());
      }
    }
    EXPECT_EQ(packed_.kernel().side_by_side(rows), side_by_side);
    std::set<std::int64_t> first;
    for (std::int64_t panel = 0; panel < side_by_side; ++panel) {
      first.insert(panel * packed_.panel_bytes());
    }
    EXPECT_EQ(late, first) << rows << " rows";
  }
}

TEST_F(MatmulTiles, AreReleased) {
  multiply_once(packed_, x_.data(), 3, 1, std::nullopt);
  EXPECT_FALSE(EmulatedTiles::configured());
}

}  // namespace
}  // namespace specdec
