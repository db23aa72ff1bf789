#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/verifier_enumeration.h"
#include "tests/unit/wrong_procedures.h"

// The rule is exact, and this battery would notice if it were not: the ways to be wrong that look right are planted as
// procedures of their own, and each has to be found.
namespace specdec::enumeration {
namespace {

std::string name_of_case(const testing::TestParamInfo<Procedure>& info) { return info.param.name; }

std::vector<Procedure> wrong_procedures() {
  std::vector<Procedure> all;
  for (const auto& some : {wrong_drafts(), wrong_acceptance(), wrong_next_tokens()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

class RightProcedure : public testing::TestWithParam<Procedure> {};

TEST_P(RightProcedure, HasTheTargetsDistribution) {
  const Verdict verdict = judge(*GetParam().step);
  EXPECT_LE(verdict.total_variation, 1e-12) << verdict.where;
  EXPECT_LE(verdict.spread, 1e-12) << verdict.where;
  EXPECT_FALSE(verdict.left_support) << verdict.where;
}

INSTANTIATE_TEST_SUITE_P(Verifier, RightProcedure, testing::ValuesIn(right_procedures()), name_of_case);

class WrongProcedure : public testing::TestWithParam<Procedure> {};

TEST_P(WrongProcedure, IsFound) {
  const Verdict verdict = judge(*GetParam().step);
  EXPECT_FALSE(verdict.exact());
  if (GetParam().fault == Fault::kAtZeroOnly) {
    EXPECT_LE(verdict.total_variation, 1e-12);
    EXPECT_TRUE(verdict.left_support);
  } else {
    // Far above what rounding could explain, so it is found for its own fault.
    EXPECT_GT(verdict.total_variation, 1e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Verifier, WrongProcedure, testing::ValuesIn(wrong_procedures()), name_of_case);

TEST(VerifierBattery, CoversItsCases) {
  EXPECT_GE(wrong_procedures().size(), 12U);
  // All ways to share four quarters among 2, 3 and 4 tokens: C(5, 1), C(6, 2), C(7, 3).
  EXPECT_EQ(dyadic_rows(2, 4).size(), 5U);
  EXPECT_EQ(dyadic_rows(3, 4).size(), 15U);
  EXPECT_EQ(dyadic_rows(4, 4).size(), 35U);
  for (const World& world : worlds()) {
    double total = 0;
    for (const auto& [sequence, weight] : target_distribution(world, 3)) {
      total += weight;
    }
    EXPECT_EQ(total, 1.0) << world.name;
  }
}

TEST(TokenVerifier, NeverAcceptsWhatTheTargetExcludes) {
  const TokenVerifier verifier;
  const std::vector<Token> tokens{0};
  const std::vector<DraftedEntry> entries{{0.0F, 0.5F}};
  const std::vector<double> zero{0.0};
  EXPECT_EQ(verifier.accept({tokens, entries, {}, {}, 2}, zero), 0);
}

TEST(TokenVerifier, ResidualThatVanishesByRoundingIsTheTargetsRow) {
  // p <= q everywhere, with p < q at one token: rows that are equal up to the rounding of their sums.
  const Row p{0.25F, 0.5F, 0.25F};
  const Row q{0.25F, 0.5F + 0x1p-24F, 0.25F};
  Row out(3);
  TokenVerifier{}.next_weights(0, p, q, out);
  EXPECT_EQ(out, p);
}

TEST(TokenVerifier, WritesOverTheTargetsRow) {
  Row p{0.25F, 0.5F, 0.25F};
  const Row q{0.5F, 0.25F, 0.25F};
  TokenVerifier{}.next_weights(0, p, q, p);
  EXPECT_EQ(p, (Row{0.0F, 0.25F, 0.0F}));
  TokenVerifier{}.next_weights(0, p, p, p);
  EXPECT_EQ(p, (Row{0.0F, 0.25F, 0.0F}));
}

}  // namespace
}  // namespace specdec::enumeration
