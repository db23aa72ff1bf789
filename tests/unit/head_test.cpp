#include "parallel/head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "backend/reference/reference_backend.h"
#include "parallel/thread_communicator.h"

namespace specdec {
namespace {

constexpr std::int64_t kHeadVocabulary = 1000;  // 16 units of 64, the last one short
constexpr std::int64_t kModelWidth = 4;
const ShardShape kHeadShape{
    .heads = 16, .kv_heads = 16, .head_dim = 2, .feed_forward = 512, .vocabulary = kHeadVocabulary};

/// One row a hidden unit vector, so that the logits of row r are column r of the matrix.
class ParallelHeadTest : public ::testing::Test {
 protected:
  using Body = std::function<void(ParallelHead&, ConstRows logits, Communicator&)>;

  void run(int ranks, const Body& body) const {
    run_ranks(ranks, [&](Communicator& group) {
      ReferenceBackend backend;
      const ShardPlan plan(kHeadShape, group.rank(), ranks);
      const Range mine = plan.vocabulary();
      const auto* data = reinterpret_cast<const std::byte*>(matrix_.data() + mine.begin * kModelWidth);
      ParallelHead head(
          backend, group, plan,
          {{{data, DType::kF32, mine.size(), kModelWidth, kModelWidth, 1}}, {{0, kModelWidth}}, DType::kF32});
      std::vector<float> hidden(kModelWidth * kModelWidth);
      for (std::int64_t i = 0; i < kModelWidth; ++i) {
        hidden[i * kModelWidth + i] = 1.0F;
      }
      std::vector<float> logits(kModelWidth * mine.size());
      const Rows out{logits.data(), kModelWidth, mine.size(), mine.size()};
      head.forward({hidden.data(), kModelWidth, kModelWidth, kModelWidth}, out, {});
      body(head, out, group);
    });
  }

  float logit(std::int64_t row, std::int64_t id) const { return matrix_[id * kModelWidth + row]; }
  float& logit(std::int64_t row, std::int64_t id) { return matrix_[id * kModelWidth + row]; }

  void SetUp() override {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (float& value : matrix_) {
      value = normal(random);
    }
  }

  std::vector<float> matrix_ = std::vector<float>(kHeadVocabulary * kModelWidth);
};

TEST_F(ParallelHeadTest, ArgmaxIsTheLowestIdOnATieOnEveryRank) {
  logit(0, 999) = 50.0F;
  logit(1, 700) = logit(1, 130) = logit(1, 131) = logit(1, 999) = 50.0F;  // on several ranks, and twice on one
  logit(2, 0) = logit(2, 999) = 50.0F;
  for (std::int64_t id = 0; id < kHeadVocabulary; ++id) {
    logit(3, id) = -1e30F;
  }
  logit(3, 640) = -3.0F;
  const std::vector<std::int32_t> expected = {999, 130, 0, 640};
  for (const int ranks : {1, 2, 3, 5, 8, 16}) {
    run(ranks, [&](ParallelHead& head, ConstRows logits, Communicator&) {
      std::vector<std::int32_t> best(kModelWidth);
      head.argmax(logits, best, {});
      EXPECT_EQ(best, expected) << ranks << " ranks";
    });
  }
}

TEST_F(ParallelHeadTest, SumsHaveTheSameBitsForEveryNumberOfRanks) {
  constexpr float kTemperature = 0.7F;
  const std::vector<std::int32_t> entry = {0, 511, 999};  // the last row has none
  std::vector<RowSum> alone(kModelWidth);
  run(1, [&](ParallelHead& head, ConstRows logits, Communicator&) {
    std::vector<float> z(entry.size());
    head.sums(logits, kTemperature, entry, alone, z, {});
  });
  for (std::int64_t r = 0; r < kModelWidth; ++r) {
    double sum = 0;
    for (std::int64_t id = 0; id < kHeadVocabulary; ++id) {
      sum += std::exp(static_cast<double>(logit(r, id) / kTemperature) - alone[r].max);
    }
    // 1000 positive terms, each with an exponential good to 2 units; slices of 64 added in a tree.
    EXPECT_NEAR(alone[r].sum, sum, 64 * 0x1p-24 * sum);
  }
  for (const int ranks : {2, 3, 4, 5, 7, 8, 16}) {
    run(ranks, [&](ParallelHead& head, ConstRows logits, Communicator& group) {
      std::vector<RowSum> sums(kModelWidth);
      std::vector<float> z(entry.size());
      head.sums(logits, kTemperature, entry, sums, z, {});
      for (std::int64_t r = 0; r < kModelWidth; ++r) {
        EXPECT_EQ(sums[r].max, alone[r].max) << ranks << " ranks, rank " << group.rank();
        EXPECT_EQ(sums[r].sum, alone[r].sum) << ranks << " ranks, rank " << group.rank();
      }
      for (std::size_t r = 0; r < entry.size(); ++r) {
        EXPECT_EQ(z[r], logit(static_cast<std::int64_t>(r), entry[r]) / kTemperature);
      }
    });
  }
}

TEST_F(ParallelHeadTest, GathersWholeRowsOnRankZero) {
  for (const int ranks : {1, 3, 8}) {
    run(ranks, [&](ParallelHead& head, ConstRows logits, Communicator& group) {
      std::vector<float> rows(group.rank() == 0 ? kModelWidth * kHeadVocabulary : 0);
      head.gather_rows(logits.slice_rows(1, 2), std::span(rows).first(rows.size() / 2), {});
      for (std::int64_t id = 0; group.rank() == 0 && id < kHeadVocabulary; ++id) {
        ASSERT_EQ(rows[id], logit(1, id));
        ASSERT_EQ(rows[kHeadVocabulary + id], logit(2, id));
      }
    });
  }
}

TEST_F(ParallelHeadTest, WholeRowsAreOnEveryRank) {
  for (const int ranks : {1, 3, 8}) {
    run(ranks, [&](ParallelHead& head, ConstRows logits, Communicator&) {
      std::vector<float> rows(2 * kHeadVocabulary);
      head.whole_rows(logits.slice_rows(1, 2), {rows.data(), 2, kHeadVocabulary, kHeadVocabulary}, {});
      for (std::int64_t id = 0; id < kHeadVocabulary; ++id) {
        ASSERT_EQ(rows[id], logit(1, id));
        ASSERT_EQ(rows[kHeadVocabulary + id], logit(2, id));
      }
    });
  }
}

}  // namespace
}  // namespace specdec
