// Which lines attention asks for: those that it takes in next, each once or nearly, however many tiles share them.
#include "backend/cpu/attention_ahead.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace specdec {
namespace {

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kFloatsALine = kLineBytes / 4;

/// A block and the one behind it, and what is asked for of them.
class AttentionAhead : public testing::TestWithParam<std::int64_t> {
 protected:
  AttentionBlock block(bool is_first) const {
    return {.keys = first_line(), .next = first_line() + key_block_size(dim_), .is_first = is_first, .head_dim = dim_};
  }

  /// Lines from the begin of the block on that all tiles ask for, when `slots` are seen.
  std::multiset<std::int64_t> asked(std::int64_t tiles, std::int64_t slots, bool is_first) const {
    std::multiset<std::int64_t> lines;
    const std::int64_t rounded = (slots + kFloatsALine - 1) / kFloatsALine * kFloatsALine;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const TileOf of = {tile, tiles};
      add(of.with_keys(block(is_first), rounded), rounded * dim_ / kFloatsALine, lines);
      add(of.with_values(block(is_first), slots), slots * padded_head_dim(dim_) / kFloatsALine, lines);
    }
    return lines;
  }

  std::int64_t line_of(const float* at) const { return (at - first_line()) / kFloatsALine; }
  std::int64_t values() const { return line_of(block(false).values()); }
  std::int64_t next() const { return line_of(block(false).next); }
  std::int64_t next_values() const { return next() + values(); }
  std::int64_t end() const { return 2 * next(); }

 private:
  const float* first_line() const { return memory_.data() + (kFloatsALine - misplaced()) % kFloatsALine; }
  std::int64_t misplaced() const { return reinterpret_cast<std::uintptr_t>(memory_.data()) / 4 % kFloatsALine; }

  void add(Ahead ahead, std::int64_t vectors, std::multiset<std::int64_t>& lines) const {
    for (std::int64_t vector = 0; vector < vectors; ++vector) {
      lines.insert((ahead.at - reinterpret_cast<const char*>(first_line())) / kLineBytes);
      ahead.ask();
    }
  }

  std::int64_t dim_ = GetParam();
  std::vector<float> memory_ = std::vector<float>(2 * key_block_size(GetParam()) + kFloatsALine);
};

bool has_all(const std::multiset<std::int64_t>& lines, std::int64_t begin, std::int64_t end) {
  for (std::int64_t line = begin; line < end; ++line) {
    if (!lines.contains(line)) return false;
  }
  return true;
}

TEST_P(AttentionAhead, OneTileAsksForTheValuesAndTheNextKeys) {
  for (const bool is_first : {false, true}) {
    const auto lines = asked(1, kKeyBlock, is_first);
    EXPECT_TRUE(has_all(lines, values(), values() + kKeyBlock * GetParam() / kFloatsALine));
    EXPECT_TRUE(has_all(lines, next(), next_values()));
  }
}

TEST_P(AttentionAhead, SeveralTilesAskForAllOfTheNextBlock) {
  for (std::int64_t tiles = 2; tiles <= 40; ++tiles) {
    const auto lines = asked(tiles, kKeyBlock, false);
    EXPECT_TRUE(has_all(lines, next(), end())) << tiles;
    EXPECT_GE(*lines.begin(), next()) << tiles;
    // A part of a line is rounded up to bytes.
    EXPECT_LE(*lines.rbegin(), end() + tiles * (end() - next()) / kLineBytes) << tiles;
  }
}

TEST_P(AttentionAhead, TheFirstTileOfAHeadAsksForTheValues) {
  const auto lines = asked(3, kKeyBlock, true);
  EXPECT_TRUE(has_all(lines, values(), values() + kKeyBlock * GetParam() / kFloatsALine));
  const std::int64_t part = (end() - next()) / 3;
  EXPECT_TRUE(has_all(lines, next() + part, end()));
}

TEST_P(AttentionAhead, OfABlockThatIsNotFullTheNextOneIsAskedForUpToItsEnd) {
  for (const std::int64_t slots : {1, 9, 16, 17, 40, 63}) {
    for (const std::int64_t tiles : {2, 5, 11}) {
      const auto lines = asked(tiles, slots, false);
      EXPECT_GE(*lines.begin(), next());
      EXPECT_LT(*lines.begin(), next() + 8);
      // The last of few vectors ask for some lines less than the end.
      EXPECT_GE(*lines.rbegin(), end() - 2 * kKeyBlock / slots - 2) << slots << " of " << tiles;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, AttentionAhead, testing::Values(16, 19, 64, 80, 128),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace specdec
