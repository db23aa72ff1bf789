#include "parallel/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "backend/error.h"
#include "tests/support/bad_input.h"

namespace specdec {
namespace {

const std::array<ShardShape, 8> kShapes = {{
    {.heads = 8, .kv_heads = 8, .head_dim = 32, .feed_forward = 768, .vocabulary = 4096},
    {.heads = 12, .kv_heads = 12, .head_dim = 64, .feed_forward = 3072, .vocabulary = 50257},
    {.heads = 25, .kv_heads = 25, .head_dim = 64, .feed_forward = 6400, .vocabulary = 50257},
    {.heads = 32, .kv_heads = 8, .head_dim = 128, .feed_forward = 14336, .vocabulary = 128256},
    {.heads = 6, .kv_heads = 2, .head_dim = 10, .feed_forward = 77, .vocabulary = 1025},
    {.heads = 16, .kv_heads = 1, .head_dim = 7, .feed_forward = 1, .vocabulary = 63},
    {.heads = 3, .kv_heads = 3, .head_dim = 32, .feed_forward = 513, .vocabulary = 4097},
    {.heads = 40, .kv_heads = 10, .head_dim = 2, .feed_forward = 31 * 32, .vocabulary = 64 * 17},
}};

bool splits(const ShardShape& shape, int ranks) {
  try {
    ShardPlan(shape, 0, ranks);
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// Ranges of all ranks, in rank order, cover [0, size) without gap or overlap.
void expect_cover(const ShardShape& shape, int ranks, std::int64_t size,
                  const std::function<Range(const ShardPlan&)>& range) {
  std::int64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    const Range mine = range(ShardPlan(shape, r, ranks));
    EXPECT_EQ(mine.begin, at);
    EXPECT_GE(mine.end, mine.begin);
    at = mine.end;
  }
  EXPECT_EQ(at, size);
}

TEST(ShardPlan, CoversEverythingOnce) {
  for (const ShardShape& shape : kShapes) {
    for (int ranks = 1; ranks <= kCanonicalSlices; ++ranks) {
      if (!splits(shape, ranks)) {
        continue;
      }
      SCOPED_TRACE(::testing::Message() << shape.heads << " heads, " << ranks << " ranks");
      expect_cover(shape, ranks, kCanonicalSlices, [](const ShardPlan& plan) { return plan.slices(); });
      expect_cover(shape, ranks, shape.heads, [](const ShardPlan& plan) { return plan.query_heads(); });
      expect_cover(shape, ranks, shape.feed_forward, [](const ShardPlan& plan) { return plan.feed_forward(); });
      expect_cover(shape, ranks, shape.vocabulary, [](const ShardPlan& plan) { return plan.vocabulary(); });
    }
  }
}

/// The local slices of a rank are the canonical ones (those of one rank), so the sums are the same whoever makes them.
TEST(ShardPlan, SlicesAreTheSameForEveryNumberOfRanks) {
  for (const ShardShape& shape : kShapes) {
    const ShardPlan whole(shape, 0, 1);
    ASSERT_EQ(whole.attention_slices().size(), static_cast<std::size_t>(kCanonicalSlices));
    EXPECT_EQ(whole.attention_slices().back().end, shape.heads * shape.head_dim);
    for (int ranks = 1; ranks <= kCanonicalSlices; ++ranks) {
      for (int r = 0; splits(shape, ranks) && r < ranks; ++r) {
        const ShardPlan plan(shape, r, ranks);
        const auto expect_canonical = [&](const std::vector<Range>& local, const std::vector<Range>& canonical,
                                          std::int64_t origin, std::int64_t size) {
          ASSERT_EQ(local.size(), static_cast<std::size_t>(plan.slices().size()));
          std::int64_t at = 0;
          for (std::size_t i = 0; i < local.size(); ++i) {
            const Range global = canonical[plan.slices().begin + i];
            EXPECT_EQ(local[i], (Range{global.begin - origin, global.end - origin}));
            EXPECT_EQ(local[i].begin, at);
            at = local[i].end;
          }
          EXPECT_EQ(at, size);
        };
        expect_canonical(plan.attention_slices(), whole.attention_slices(), plan.query_heads().begin * shape.head_dim,
                         plan.query_heads().size() * shape.head_dim);
        expect_canonical(plan.feed_forward_slices(), whole.feed_forward_slices(), plan.feed_forward().begin,
                         plan.feed_forward().size());
        expect_canonical(plan.vocabulary_slices(), whole.vocabulary_slices(), plan.vocabulary().begin,
                         plan.vocabulary().size());
      }
    }
  }
}

TEST(ShardPlan, PowersOfTwoNest) {
  for (const ShardShape& shape : kShapes) {
    for (int ranks = 2; ranks <= kCanonicalSlices; ranks *= 2) {
      for (int r = 0; splits(shape, ranks) && r < ranks; ++r) {
        const Range mine = ShardPlan(shape, r, ranks).slices();
        const Range parent = ShardPlan(shape, r / 2, ranks / 2).slices();
        EXPECT_EQ(mine.size(), kCanonicalSlices / ranks);
        EXPECT_EQ(mine.begin % mine.size(), 0) << "a whole subtree of the summation tree";
        EXPECT_TRUE(parent.begin <= mine.begin && mine.end <= parent.end);
      }
    }
  }
}

TEST(ShardPlan, CutsOnUnits) {
  for (const ShardShape& shape : kShapes) {
    const ShardPlan whole(shape, 0, 1);
    for (const Range& slice : whole.attention_slices()) {
      EXPECT_EQ(slice.begin % shape.head_dim, 0);
    }
    for (const Range& slice : whole.feed_forward_slices()) {
      EXPECT_TRUE(slice.begin % kFeedForwardUnit == 0 || slice.begin == shape.feed_forward);
    }
    for (const Range& slice : whole.vocabulary_slices()) {
      EXPECT_TRUE(slice.begin % kVocabularyUnit == 0 || slice.begin == shape.vocabulary);
    }
  }
}

TEST(ShardPlan, KvHeadsFollowTheirQueryHeads) {
  for (const ShardShape& shape : kShapes) {
    for (int ranks = 1; ranks <= kCanonicalSlices; ++ranks) {
      for (int r = 0; splits(shape, ranks) && r < ranks; ++r) {
        const ShardPlan plan(shape, r, ranks);
        const std::vector<std::int32_t> map = plan.kv_head_of_query_head();
        ASSERT_EQ(map.size(), static_cast<std::size_t>(plan.query_heads().size()));
        std::vector<bool> used(plan.kv_heads().size());
        for (std::size_t i = 0; i < map.size(); ++i) {
          const std::int64_t query = plan.query_heads().begin + static_cast<std::int64_t>(i);
          EXPECT_EQ(plan.kv_heads().begin + map[i], query * shape.kv_heads / shape.heads);
          ASSERT_TRUE(map[i] >= 0 && map[i] < plan.kv_heads().size());
          used[map[i]] = true;
        }
        EXPECT_THAT(used, ::testing::Each(true)) << "no KV head is held for nothing";
      }
    }
  }
}

TEST(ShardPlan, RefusesIdleAndTooManyRanks) {
  const ShardShape tiny{.heads = 2, .kv_heads = 1, .head_dim = 8, .feed_forward = 32, .vocabulary = 64};
  EXPECT_TRUE(splits(tiny, 1));
  EXPECT_TRUE(splits(tiny, 2));
  EXPECT_FALSE(splits(tiny, 4));
  EXPECT_FALSE(splits(kShapes[3], 17));
  EXPECT_TRUE(splits(kShapes[3], 16));
  EXPECT_THAT(tests::bad_input([&] { ShardPlan(tiny, 0, 4); }),
              ::testing::HasSubstr("4 ranks leave rank 0 nothing to do"));
}

TEST(ShardPlan, LargestVocabularyShard) {
  for (const ShardShape& shape : kShapes) {
    for (int ranks = 1; ranks <= kCanonicalSlices; ++ranks) {
      if (!splits(shape, ranks)) {
        continue;
      }
      std::int64_t largest = 0;
      for (int r = 0; r < ranks; ++r) {
        largest = std::max(largest, ShardPlan(shape, r, ranks).vocabulary().size());
      }
      EXPECT_EQ(ShardPlan(shape, 0, ranks).max_vocabulary_shard(), largest);
    }
  }
}

}  // namespace
}  // namespace specdec
