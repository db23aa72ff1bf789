/// As tests/unit/greedy_bits_test.cpp, over the mpi transport: every rank decodes the reference by itself.
#include "tests/support/greedy_bits.h"

#include "mpi_test.h"
#include "tests/support/random_model.h"

namespace specdec::testing {
namespace {

void expect_bits(const GreedySubject& subject, const std::vector<std::int64_t>& ks) {
  const auto group = mpi_test::session().world("auto");
  const GreedyCoverage coverage = expect_greedy_bits(*group, subject, ks, 1);
  if (group->rank() == 0) {
    EXPECT_GT(coverage.accepted, 0);
    EXPECT_GT(coverage.rejected, 0);
  }
}

const std::vector<std::int64_t> kAllK{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

TEST(GreedyBits, LlamaWithGroupedQueries) {
  const TemporaryDirectory directory;
  expect_bits(make_random_subject("llama", directory.path()), kAllK);
}

TEST(GreedyBits, Gpt2) {
  const TemporaryDirectory directory;
  expect_bits(make_random_subject("gpt2", directory.path()), kAllK);
}

TEST(GreedyBits, ShippedPair) { expect_bits(make_shipped_subject(), {0, 1, 4, 15}); }

}  // namespace
}  // namespace specdec::testing
