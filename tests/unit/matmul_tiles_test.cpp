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

  /// Of the calling thread.
  std::vector<Access> accesses_of(std::int64_t rows, int threads = 1) {
    std::vector<Access> accesses;
    EmulatedTiles::trace() = &accesses;
    multiply_once(packed_, x_.data(), rows, threads, std::nullopt);
    EmulatedTiles::trace() = nullptr;
    return accesses;
  }

  bool is_weight(const std::byte* from) const {
    return from >= packed_.panels() && from < packed_.panels() + packed_.bytes();
  }

  /// The places of tiles of which some line was not asked for before the tile was first read. What is asked for is weights.
  std::set<std::int64_t> read_unasked(const std::vector<Access>& accesses) {
    std::set<const std::byte*> asked;
    std::set<const std::byte*> read;
    std::set<std::int64_t> unasked;
    for (const Access& access : accesses) {
      if (access.prefetched) {
        EXPECT_TRUE(is_weight(access.from));
        asked.insert(access.from);
      } else if (is_weight(access.from) && read.insert(access.from).second) {
        for (std::int64_t byte = 0; byte < kTileBytes; byte += 64) {
          if (!asked.contains(access.from + byte)) unasked.insert(access.from - packed_.panels());
        }
      }
    }
    return unasked;
  }

  /// The first tiles, of so many panels.
  std::set<std::int64_t> first_tiles(std::int64_t panels) {
    std::set<std::int64_t> tiles;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      for (std::int64_t byte = 0; byte < Bf16OnTiles<EmulatedTiles>::kAheadBytes; byte += kTileBytes) {
        tiles.insert(panel * packed_.panel_bytes() + byte);
      }
    }
    return tiles;
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
  for (const auto& [rows, side_by_side] : {std::pair{1, 4}, {8, 4}, {16, 4}, {17, 2}, {64, 2}}) {
    EXPECT_EQ(packed_.kernel().side_by_side(rows), side_by_side);
    EXPECT_EQ(read_unasked(accesses_of(rows)), first_tiles(side_by_side)) << rows << " rows";
  }
}

/// What a thread takes next of its part of a matrix was asked for by what it took before, unless another thread took that.
TEST_F(MatmulTiles, APartOfSeveralRunsIsAskedForAsOne) {
  for (const int rows : {1, 16, 17}) {
    const std::int64_t run_panels = packed_.kernel().side_by_side(rows);
    const std::vector<Access> accesses = accesses_of(rows, 2);
    std::set<std::int64_t> read;
    for (const Access& access : accesses) {
      if (!access.prefetched && is_weight(access.from)) {
        read.insert((access.from - packed_.panels()) / packed_.panel_bytes());
      }
    }
    for (const std::int64_t place : read_unasked(accesses)) {
      const std::int64_t panel = place / packed_.panel_bytes();
      if (panel < packed_.panel_count() / 2) {
        EXPECT_FALSE(read.contains(panel / run_panels * run_panels - 1)) << rows << " rows, panel " << panel;
      }
    }
  }
}

TEST_F(MatmulTiles, AreReleased) {
  multiply_once(packed_, x_.data(), 3, 1, std::nullopt);
  EXPECT_FALSE(EmulatedTiles::configured());
}

}  // namespace
}  // namespace specdec
