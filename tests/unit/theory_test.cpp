#include "runtime/theory.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/error.h"

namespace specdec {
namespace {

// Leviathan et al. 2023, table 1: c and c^ negligible; printed with two decimals.
struct PrintedRow {
  double alpha;
  std::int64_t k;
  double operations;
  double speed;
};

class LeviathanTable : public testing::TestWithParam<PrintedRow> {};

TEST_P(LeviathanTable, IsReproduced) {
  const auto [alpha, k, operations, speed] = GetParam();
  EXPECT_NEAR(operations_factor(alpha, k, 0.0), operations, 0.005);
  EXPECT_NEAR(speedup_factor(alpha, k, 0.0), speed, 0.005);
}

INSTANTIATE_TEST_SUITE_P(Paper, LeviathanTable,
                         testing::Values(PrintedRow{0.6, 2, 1.53, 1.96}, PrintedRow{0.7, 3, 1.58, 2.53},
                                         PrintedRow{0.8, 5, 1.63, 3.69}, PrintedRow{0.9, 10, 1.60, 6.86}));

TEST(Theory, TokensPerLoopIsEquationOne) {
  for (const double alpha : {0.0, 0.25, 0.5, 0.9, 0.999}) {
    for (const std::int64_t k : {0, 1, 4, 15}) {
      const double closed = (1 - std::pow(alpha, static_cast<double>(k + 1))) / (1 - alpha);
      // The closed form loses about eps / (1 - alpha) of its relative precision.
      EXPECT_NEAR(tokens_per_loop(alpha, k), closed, closed * 4e-16 / (1 - alpha)) << alpha << " " << k;
    }
  }
}

TEST(Theory, CertainAcceptanceGivesTheWholeBlock) {
  EXPECT_EQ(tokens_per_loop(1.0, 7), 8.0);
  EXPECT_EQ(speedup_factor(1.0, 4, 0.25), 2.5);
  EXPECT_EQ(operations_factor(1.0, 4, 0.0), 1.0);
  EXPECT_EQ(tokens_per_loop(1.0, 0), 1.0);
  // Continuous up to the end, where the closed form would be 0/0.
  EXPECT_NEAR(tokens_per_loop(1.0 - 1e-15, 7), 8.0, 1e-13);
}

TEST(Theory, NothingDraftedIsNoChange) {
  EXPECT_EQ(tokens_per_loop(0.5, 0), 1.0);
  EXPECT_EQ(speedup_factor(0.5, 0, 0.3), 1.0);
  EXPECT_EQ(operations_factor(0.5, 0, 0.3), 1.0);
}

TEST(Theory, BestKIsTheArgmax) {
  EXPECT_EQ(best_k(0.0, 0.1, 16), 0);
  EXPECT_EQ(best_k(1.0, 0.0, 16), 16);
  // A gain needs alpha > c, and has one at K = 1 as soon as that holds (theorem 3.8, corollary 3.9).
  EXPECT_EQ(best_k(0.3, 0.3, 16), 0);
  EXPECT_GE(best_k(0.3, 0.29, 16), 1);
  // By hand at alpha 1/2, c 1/8: 1, 1.333, 1.4, 1.3636 for K = 0..3.
  EXPECT_EQ(best_k(0.5, 0.125, 16), 2);
  EXPECT_EQ(best_k(0.5, 0.125, 1), 1);
  EXPECT_EQ(best_k(0.5, 0.125, 0), 0);
  // By hand at alpha 1/2, c 1/2: 1, 1, 0.875: the tie goes to the smaller K.
  EXPECT_EQ(best_k(0.5, 0.5, 16), 0);
}

TEST(Theory, InvertsEquationOne) {
  for (const double alpha : {0.0, 0.1, 0.5, 0.755, 0.884, 1.0}) {
    for (const std::int64_t k : {1, 2, 4, 7}) {
      // Near alpha = 0 the slope is 1, so the error of tokens (an ulp of K + 1) is also that of alpha.
      EXPECT_NEAR(alpha_from_tokens_per_loop(tokens_per_loop(alpha, k), k), alpha, 4e-15) << alpha << " " << k;
    }
  }
  EXPECT_EQ(alpha_from_tokens_per_loop(1.0, 4), 0.0);
  EXPECT_EQ(alpha_from_tokens_per_loop(5.0, 4), 1.0);
}

TEST(Theory, ChinchillaFigureOneHasOneAlpha) {
  // Chen et al. 2023, figure 1, HumanEval: tokens per loop / (K + 1) at K = 1..7, read off to about 0.004; alpha is
  // nearly constant, 0.884.
  const double efficiency[] = {.945, .887, .838, .796, .752, .712, .676};
  for (std::int64_t k = 1; k <= 7; ++k) {
    const double tokens = efficiency[k - 1] * static_cast<double>(k + 1);
    EXPECT_NEAR(alpha_from_tokens_per_loop(tokens, k), 0.884, 0.01) << k;
  }
}

TEST(Theory, RefusesWhatIsOutsideItsDomain) {
  EXPECT_THROW(tokens_per_loop(1.1, 2), Error);
  EXPECT_THROW(tokens_per_loop(0.5, -1), Error);
  EXPECT_THROW(tokens_per_loop(std::nan(""), 1), Error);
  EXPECT_THROW(speedup_factor(0.5, 2, -0.1), Error);
  EXPECT_THROW(operations_factor(0.5, 2, -0.1), Error);
  EXPECT_THROW(alpha_from_tokens_per_loop(5.1, 4), Error);
  EXPECT_THROW(alpha_from_tokens_per_loop(1.0, 0), Error);
}

}  // namespace
}  // namespace specdec
