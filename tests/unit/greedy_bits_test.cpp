/// Greedy speculative decoding equals greedy autoregressive decoding in every bit of every logit (docs/numerics.md).
#include "tests/support/greedy_bits.h"

#include <gtest/gtest.h>

#include "parallel/thread_communicator.h"
#include "tests/support/emulated_tiles_backend.h"
#include "tests/support/random_model.h"

namespace specdec::tests {
namespace {

const std::vector<std::int64_t> kAllK{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

class GreedyBits : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void run(const GreedySubject& subject, const std::vector<std::int64_t>& ks) {
    const auto [ranks, threads] = GetParam();
    GreedyCoverage coverage;
    run_ranks(ranks, [&, threads = threads](Communicator& group) {
      const GreedyCoverage seen = expect_greedy_bits(group, subject, ks, threads);
      if (group.rank() == 0) {
        coverage = seen;
      }
    });
    EXPECT_GT(coverage.accepted, 0);
    EXPECT_GT(coverage.rejected, 0);
    RecordProperty("runs", static_cast<int>(coverage.runs));
  }
};

TEST_P(GreedyBits, LlamaWithGroupedQueries) {
  const TemporaryDirectory directory;
  run(make_random_subject("llama", directory.path()), kAllK);
}

TEST_P(GreedyBits, Gpt2) {
  const TemporaryDirectory directory;
  run(make_random_subject("gpt2", directory.path()), kAllK);
}

TEST_P(GreedyBits, ShippedPair) { run(make_shipped_subject(), {0, 1, 4, 15, 20}); }

TEST_P(GreedyBits, LlamaInInt8) {
  const TemporaryDirectory directory;
  run(make_random_subject("llama", directory.path(), DType::kInt8), {0, 1, 2, 4, 7, 15});
}

TEST_P(GreedyBits, ShippedPairInInt8) { run(make_shipped_subject(DType::kInt8), {0, 1, 4, 15}); }

class GreedyBitsOnEmulatedTiles : public ::testing::TestWithParam<int> {};

TEST_P(GreedyBitsOnEmulatedTiles, LlamaWithGroupedQueries) {
  const TemporaryDirectory directory;
  const GreedySubject subject =
      make_random_subject("llama", directory.path(), DType::kBF16, make_emulated_tiles_backend);
  GreedyCoverage coverage;
  run_ranks(GetParam(), [&](Communicator& group) {
    const GreedyCoverage seen = expect_greedy_bits(group, subject, {0, 1, 4}, 1);
    if (group.rank() == 0) {
      coverage = seen;
    }
  });
  EXPECT_GT(coverage.accepted, 0);
  EXPECT_GT(coverage.rejected, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GreedyBitsOnEmulatedTiles, ::testing::Values(1, 4),
                         [](const auto& value) { return std::to_string(value.param) + "ranks"; });

INSTANTIATE_TEST_SUITE_P(RanksAndThreads, GreedyBits,
                         ::testing::Values(std::tuple{1, 1}, std::tuple{1, 2}, std::tuple{2, 1}, std::tuple{2, 2},
                                           std::tuple{4, 1}, std::tuple{8, 1}),
                         [](const auto& value) {
                           return std::to_string(std::get<0>(value.param)) + "ranks" +
                                  std::to_string(std::get<1>(value.param)) + "threads";
                         });

}  // namespace
}  // namespace specdec::tests
