/// Acceptance at a stated rate: what loops yield is what eq. 1 says of it, and the rest is as the rule has it.
#include "runtime/acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "backend/error.h"
#include "runtime/philox.h"
#include "runtime/theory.h"

namespace specdec {
namespace {

/// What loops of K drafted tokens yield, by what the models say of nothing.
std::vector<double> yields(double alpha, std::int64_t k, std::int64_t loops) {
  const SyntheticVerifier verifier(alpha);
  const std::vector<Token> tokens(static_cast<std::size_t>(k), 7);
  const std::vector<DraftedEntry> entries(tokens.size(), {.p = 0, .q = 1});
  std::vector<double> uniforms(tokens.size());
  RandomKey key{.seed = 3, .purpose = Purpose::kAccept};
  std::vector<double> out;
  for (std::int64_t i = 0; i < loops; ++i) {
    for (double& u : uniforms) {
      u = uniform(key);
      ++key.position;
    }
    out.push_back(1 + static_cast<double>(verifier.accept({.tokens = tokens, .entries = entries}, uniforms)));
  }
  return out;
}

TEST(Acceptance, TokensPerLoopAreThoseOfEquationOneWithinTheirInterval) {
  constexpr std::int64_t kLoops = 40'000;
  for (const double alpha : {0.1, 0.5, 0.755, 0.884, 0.99}) {
    for (const std::int64_t k : {1, 2, 4, 7, 16}) {
      const std::vector<double> found = yields(alpha, k, kLoops);
      const double mean = std::accumulate(found.begin(), found.end(), 0.0) / kLoops;
      // n tokens with probability alpha^(n-1) (1 - alpha), and K + 1 with alpha^K.
      const double expected = tokens_per_loop(alpha, k);
      double variance = 0;
      for (std::int64_t n = 1; n <= k + 1; ++n) {
        const double probability = std::pow(alpha, n - 1) * (n <= k ? 1 - alpha : 1);
        variance += probability * (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected);
      }
      EXPECT_NEAR(mean, expected, 5 * std::sqrt(variance / kLoops)) << "alpha " << alpha << ", K " << k;
    }
  }
}

TEST(Acceptance, AllStandAtOneAndNoneAtZero) {
  for (const double tokens : yields(1, 5, 100)) EXPECT_EQ(tokens, 6);
  for (const double tokens : yields(0, 5, 100)) EXPECT_EQ(tokens, 1);
}

TEST(Acceptance, MeasuredRateIsTheStatedOneWhateverTheModelsSay) {
  EXPECT_EQ(SyntheticVerifier(0.3).acceptance({.p = 0.9F, .q = 0.1F}), 0.3);
  EXPECT_DOUBLE_EQ(TokenVerifier().acceptance({.p = 0.5F, .q = 1.0F}), 0.5);
  EXPECT_EQ(TokenVerifier().acceptance({.p = 0.9F, .q = 0.1F}), 1.0);
}

TEST(Acceptance, WhatATokenIsDrawnFromIsTheRules) {
  const std::vector<float> p = {0.5F, 0.25F, 0.25F};
  const std::vector<float> q = {0.75F, 0.125F, 0.125F};
  std::vector<float> made(3);
  std::vector<float> expected(3);
  SyntheticVerifier(0.5).next_weights(0, p, q, made);
  TokenVerifier().next_weights(0, p, q, expected);
  EXPECT_EQ(made, expected);
}

TEST(Acceptance, ChoiceAndLabel) {
  EXPECT_EQ(label_of(AcceptanceChoice{}), "");
  EXPECT_EQ(label_of(AcceptanceChoice{.synthetic = true, .alpha = 0.884}), "acceptance: synthetic (alpha 0.884)");
  EXPECT_EQ(make_verifier({})->acceptance({.p = 1, .q = 1}), 1.0);
  EXPECT_EQ(make_verifier({.synthetic = true, .alpha = 0.25})->acceptance({.p = 1, .q = 1}), 0.25);
  EXPECT_THROW(SyntheticVerifier(1.5), Error);
}

}  // namespace
}  // namespace specdec
