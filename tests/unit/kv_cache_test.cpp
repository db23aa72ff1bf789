#include "models/kv_cache.h"

#include <gtest/gtest.h>

#include "backend/error.h"
#include "backend/reference/reference_backend.h"

namespace specdec {
namespace {

constexpr KvShape kCacheShape{.layers = 2, .kv_heads = 1, .head_dim = 1, .capacity = 8};

/// A cache whose keys are all 0, so that attention gives the mean of the values that it sees.
class KvCacheTest : public ::testing::Test {
 protected:
  /// Appends one row for each value, in every layer.
  void append(std::vector<float> values) {
    const auto rows = static_cast<std::int64_t>(values.size());
    const std::int64_t first = cache_.append(rows);
    std::vector<float> keys(values.size());
    for (std::int64_t layer = 0; layer < kCacheShape.layers; ++layer) {
      backend_.kv_append(cache_.store(), layer, {.first_slot = first}, {keys.data(), rows, 1, 1},
                         {values.data(), rows, 1, 1}, {});
    }
  }

  /// Sum of the committed values, by the attention of a further row of value 0, which is dropped again.
  float sum_of_committed(std::int64_t layer) {
    append({0});
    const float query = 0;
    float mean = 0;
    const std::int32_t position = 0;
    const std::int32_t parent = -1;
    const std::int32_t kv_head = 0;
    backend_.attention({&query, 1, 1, 1}, cache_.store(), layer, {{&position, 1}, {&parent, 1}, cache_.committed()},
                       {&kv_head, 1}, 1.0F, {&mean, 1, 1, 1}, {});
    cache_.commit_prefix(0);
    return mean * static_cast<float>(cache_.committed() + 1);
  }

  ReferenceBackend backend_;
  KvCache cache_{backend_, kCacheShape};
};

TEST_F(KvCacheTest, CommittingAPrefixDropsTheRest) {
  append({1, 2, 4});
  EXPECT_EQ(cache_.pending(), 3);
  EXPECT_EQ(cache_.committed(), 0);
  cache_.commit_prefix(2);
  EXPECT_EQ(cache_.pending(), 0);
  EXPECT_EQ(cache_.committed(), 2);
  EXPECT_EQ(sum_of_committed(1), 3);
  append({8});
  cache_.commit_prefix(1);
  EXPECT_EQ(sum_of_committed(1), 11);
}

TEST_F(KvCacheTest, CommittingAPathMovesItsRowsTogether) {
  append({1});
  cache_.commit_prefix(1);
  append({2, 4, 8, 16});
  const std::vector<std::int32_t> path{0, 2, 3};
  cache_.commit(path, {});
  EXPECT_EQ(cache_.committed(), 4);
  EXPECT_EQ(cache_.pending(), 0);
  for (std::int64_t layer = 0; layer < kCacheShape.layers; ++layer) {
    EXPECT_EQ(sum_of_committed(layer), 1 + 2 + 8 + 16);
  }
}

TEST_F(KvCacheTest, RowsBehindACommittedPrefixMayStayPending) {
  append({1, 2, 4, 8});
  cache_.commit_prefix(1, 2);
  EXPECT_EQ(cache_.committed(), 1);
  EXPECT_EQ(cache_.pending(), 2);
  append({16});  // where 8 was
  cache_.commit_prefix(3);
  EXPECT_EQ(sum_of_committed(0), 1 + 2 + 4 + 16);
}

TEST_F(KvCacheTest, ClearingForgetsEverything) {
  append({1, 2});
  cache_.commit_prefix(1);
  append({4});
  cache_.clear();
  EXPECT_EQ(cache_.committed() + cache_.pending(), 0);
  append({8});
  cache_.commit_prefix(1);
  EXPECT_EQ(sum_of_committed(0), 8);
}

TEST_F(KvCacheTest, RefusesWhatCannotBe) {
  append({1, 2, 4});
  EXPECT_THROW(cache_.append(6), Error);
  EXPECT_THROW(cache_.commit_prefix(4), Error);
  EXPECT_THROW(cache_.commit_prefix(-1), Error);
  EXPECT_THROW(cache_.commit_prefix(2, 2), Error);
  for (const std::vector<std::int32_t>& path : {std::vector<std::int32_t>{3}, {1, 0}, {1, 1}, {-1}}) {
    EXPECT_THROW(cache_.commit(path, {}), Error);
  }
}

}  // namespace
}  // namespace specdec
