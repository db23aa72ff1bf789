// What no result shows of the kernel for tiles: what it reads, how often, and what it asks for in time. On emulated tiles.
#include "backend/cpu/matmul_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  std::vector<Access> accesses_of(std::int64_t rows, int threads = 1) { return accesses_of(packed_, rows, threads); }
  std::vector<Access> accesses_of(const CpuPackedLinear& packed, std::int64_t rows, int threads = 1) {
    std::vector<Access> accesses;
    EmulatedTiles::trace() = &accesses;
    multiply_once(packed, x_.data(), rows, threads, std::nullopt);
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

/// The places of the tiles of int8 weights, each with the lines of its group and, of the group's last, its scales: slices of 9, 492 and 500 steps, so that groups
/// are short, of one tile or two, in the middle of a panel and at its end.
class Int8Tiles : public MatmulTiles {
 protected:
  std::map<const std::byte*, std::int64_t> tiles() const {
    std::map<const std::byte*, std::int64_t> lines;
    for (std::int64_t panel = 0; panel < int8_.panel_count(); ++panel) {
      const std::byte* at = int8_.panels() + panel * int8_.panel_bytes();
      for (std::int64_t left : int8_.slice_steps()) {
        for (; left > 0; left -= kInt8GroupSteps) {
          const std::int64_t group = std::min(left, kInt8GroupSteps);
          const std::int64_t first = std::min(group, kTileSteps);
          lines[at] = first + (group == first ? 1 : 0);
          if (group > first) lines[at + kTileBytes] = group - first + 1;
          at += (group + 1) * kStepBytes;
        }
      }
      EXPECT_EQ(at, int8_.panels() + (panel + 1) * int8_.panel_bytes());
    }
    return lines;
  }
  const std::byte* end() const { return int8_.panels() + int8_.bytes(); }

  const CpuPackedLinear int8_{weight_.spec(DType::kInt8), tests::kMatmulEmulatedTilesInt8};
};

TEST_F(Int8Tiles, AreReadOnceForEachBlockOfRows) {
  std::int64_t short_of_the_end = 0;
  for (const auto& [from, lines] : tiles()) short_of_the_end += from + kTileBytes > end() ? 1 : 0;
  ASSERT_EQ(short_of_the_end, 1) << "what is read from a copy, since a tile of it would go on behind the matrix";
  for (const auto& [rows, blocks] : {std::pair{1, 1}, {5, 1}, {16, 1}, {17, 2}, {64, 4}}) {
    std::map<const std::byte*, int> reads;
    for (const Access& access : accesses_of(int8_, rows)) {
      if (access.prefetched || access.from < int8_.panels() || access.from >= end()) continue;
      EXPECT_LE(access.from + kTileBytes, end());
      ++reads[access.from];
    }
    for (const auto& [from, lines] : tiles()) {
      if (from + kTileBytes > end()) continue;
      ASSERT_EQ(reads[from], blocks) << rows << " rows";
    }
    EXPECT_EQ(reads.size() + 1, tiles().size()) << rows << " rows";
  }
}

/// But for the first lines of the first panels.
TEST_F(Int8Tiles, AreAskedForBeforeTheyAreRead) {
  const std::map<const std::byte*, std::int64_t> all = tiles();
  for (const int rows : {1, 8, 16}) {
    std::set<const std::byte*> asked;
    for (const Access& access : accesses_of(int8_, rows)) {
      if (access.prefetched) {
        ASSERT_TRUE(int8_.panels() <= access.from && access.from < end());
        asked.insert(access.from);
        continue;
      }
      const auto tile = all.find(access.from);
      if (tile == all.end()) continue;
      for (std::int64_t line = 0; line < tile->second; ++line) {
        const std::byte* const from = tile->first + line * kStepBytes;
        const std::int64_t place = from - int8_.panels();
        const bool first = place / int8_.panel_bytes() < int8_.kernel().side_by_side(rows) &&
                           place % int8_.panel_bytes() < Int8OnTiles<EmulatedTiles>::kAheadBytes;
        ASSERT_NE(asked.contains(from), first) << rows << " rows, byte " << place % int8_.panel_bytes();
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
