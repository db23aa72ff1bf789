/// As tests/unit/greedy_bits_test.cpp, over the transports between processes: every rank decodes the reference by itself.
#include "tests/support/greedy_bits.h"

#include "mpi_test.h"
#include "tests/support/all_isas.h"
#include "tests/support/random_model.h"

namespace specdec::tests {
namespace {

class GreedyBits : public ::testing::TestWithParam<const char*> {};

void expect_bits(const GreedySubject& subject, const std::vector<std::int64_t>& ks, const char* transport) {
  const auto group = mpi_test::session().world(transport);
  const GreedyCoverage coverage = expect_greedy_bits(*group, subject, ks, 1);
  if (group->rank() == 0) {
    EXPECT_GT(coverage.accepted, 0);
    EXPECT_GT(coverage.rejected, 0);
  }
}

const std::vector<std::int64_t> kAllK{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

TEST_P(GreedyBits, LlamaWithGroupedQueries) {
  const TemporaryDirectory directory;
  expect_bits(make_random_subject("llama", directory.path()), kAllK, GetParam());
}

TEST_P(GreedyBits, Gpt2) {
  const TemporaryDirectory directory;
  expect_bits(make_random_subject("gpt2", directory.path()), kAllK, GetParam());
}

TEST_P(GreedyBits, ShippedPair) { expect_bits(make_shipped_subject(), {0, 1, 4, 15}, GetParam()); }

/// As `parallel.isa` chooses them. Those that this machine lacks are not in the list of tests.
class GreedyBitsOf : public ::testing::TestWithParam<Isa> {};

TEST_P(GreedyBitsOf, LlamaWithGroupedQueries) {
  const TemporaryDirectory directory;
  const auto make = [] { return make_backend({.name = "cpu", .isa = GetParam(), .threads = 1}); };
  expect_bits(make_random_subject("llama", directory.path(), DType::kBF16, make), {0, 1, 4, 15}, "shm");
}

INSTANTIATE_TEST_SUITE_P(Every, GreedyBitsOf, ::testing::ValuesIn(all_isas()),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

INSTANTIATE_TEST_SUITE_P(Over, GreedyBits, ::testing::Values("mpi", "shm", "hier"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace specdec::tests
