/// Delays that come now and then, found again from percentiles.
#include "runtime/delays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace specdec {
namespace {

TEST(Delays, OfFewThatComeTheQuantilesAreThoseOfOneExponential) {
  // P(sum > x) = number * exp(-x) + O(number^2)
  for (const double p : {0.999, 0.9999}) {
    EXPECT_NEAR(quantile_of_delays(0.01, p), std::log(0.01 / (1 - p)), 0.02);
  }
  EXPECT_EQ(quantile_of_delays(0.5, 0.5), 0) << "e^-0.5 of all times have none";
}

TEST(Delays, QuantilesAreThoseOfADrawnSample) {
  std::mt19937_64 random(1);
  for (const double number : {0.3, 2.0, 12.0}) {
    std::poisson_distribution<int> count(number);
    std::exponential_distribution<double> one(1);
    std::vector<double> sums(400000);
    for (double& sum : sums) {
      for (int left = count(random); left > 0; --left) sum += one(random);
    }
    std::ranges::sort(sums);
    for (const double p : {0.5, 0.9, 0.99}) {
      const double drawn = sums[static_cast<std::size_t>(p * static_cast<double>(sums.size()))];
      EXPECT_NEAR(quantile_of_delays(number, p), drawn, 0.02 * drawn + 0.01) << number << " " << p;
    }
  }
}

TEST(Delays, AreFoundAgainFromPercentiles) {
  for (const double number : {0.15, 0.4, 1.0, 8.0}) {
    const double mean = 0.003;
    const auto at = [&](double p) { return 0.02 + mean * quantile_of_delays(number, p); };
    const std::optional<Delays> found = delays_of({at(0.5), at(0.9), at(0.99)});
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->number, number, 1e-3 * number);
    EXPECT_NEAR(found->mean, mean, 1e-3 * mean);
  }
}

TEST(Delays, ThereAreNoneOfTimesThatAreAllAlikeAndTheRareOnesKeepP99) {
  EXPECT_FALSE(delays_of({1, 1, 1}));
  EXPECT_FALSE(delays_of({1, 1.1, 1.1}));
  const std::optional<Delays> rare = delays_of({1, 1.0001, 3});
  ASSERT_TRUE(rare);
  EXPECT_NEAR(rare->mean * quantile_of_delays(rare->number, 0.99), 2, 1e-6);
}

}  // namespace
}  // namespace specdec
