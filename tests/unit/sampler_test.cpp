#include "backend/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/error.h"
#include "models/config.h"
#include "runtime/philox.h"
#include "tests/support/bad_input.h"
#include "tests/support/odd_floats.h"

namespace specdec {
namespace {

using tests::kInfinity;
using Row = std::vector<float>;

Row warp(const SamplingParams& params, const Row& logits) {
  Row out(logits.size(), -1.0F);
  Sampler(params).warp(logits, out);
  return out;
}

std::vector<Token> kept(const Row& probabilities) {
  std::vector<Token> out;
  for (std::size_t x = 0; x < probabilities.size(); ++x) {
    if (probabilities[x] > 0.0F) {
      out.push_back(static_cast<Token>(x));
    }
  }
  return out;
}

double total(const Row& row) { return std::accumulate(row.begin(), row.end(), 0.0); }

/// Logits of a normal distribution, the sum of twelve uniforms, rounded so that ties happen.
Row random_logits(std::size_t size, double spread, std::uint64_t seed) {
  Row out(size);
  for (std::size_t i = 0; i < size; ++i) {
    double sum = -6;
    for (std::uint32_t j = 0; j < 12; ++j) {
      sum += uniform({.seed = seed, .round = j, .position = static_cast<std::uint32_t>(i)});
    }
    out[i] = static_cast<float>(std::round(64 * sum * spread) / 64);
  }
  return out;
}

TEST(Sampler, TemperatureZeroIsTheLowestLargest) {
  EXPECT_EQ(warp({0.0F, 3, 0.5F}, {1.0F, 4.0F, -2.0F, 4.0F}), (Row{0, 1, 0, 0}));
}

TEST(Sampler, OneTokenIsCertain) {
  for (const SamplingParams& params : {SamplingParams{}, {0.0F}, {0.8F, 1, 0.5F}, {1e-30F, 5, 1e-30F}}) {
    EXPECT_EQ(warp(params, {-3.5F}), Row{1.0F});
  }
}

TEST(Sampler, TiesAtTheCutGoToTheLowestId) {
  const Row flat(8, 0.25F);
  EXPECT_EQ(kept(warp({1.0F, 3, 1.0F}, flat)), (std::vector<Token>{0, 1, 2}));
  EXPECT_EQ(kept(warp({1.0F, 0, 0.5F}, flat)), (std::vector<Token>{0, 1, 2, 3}));
  EXPECT_EQ(kept(warp({1.0F, 0, 0.51F}, flat)), (std::vector<Token>{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept(warp({1.0F, 2, 1.0F}, {0.0F, 1.0F, 2.0F, 1.0F, 1.0F})), (std::vector<Token>{1, 2}));
  // Top-p sees what top-k left: three equal tokens of one third.
  EXPECT_EQ(kept(warp({1.0F, 3, 0.5F}, flat)), (std::vector<Token>{0, 1}));
}

TEST(Sampler, LimitsOfTopKAndTopP) {
  const Row logits{0.0F, 3.0F, 1.0F, 2.0F};
  const Row whole = warp({}, logits);
  EXPECT_EQ(kept(whole).size(), 4U);
  EXPECT_EQ(warp({1.0F, 4, 1.0F}, logits), whole);
  EXPECT_EQ(warp({1.0F, 1000, 1.0F}, logits), whole);
  EXPECT_EQ(warp({1.0F, 1, 1.0F}, logits), (Row{0, 1, 0, 0}));
  EXPECT_EQ(warp({1.0F, 0, 1e-30F}, logits), (Row{0, 1, 0, 0}));
  EXPECT_EQ(warp({1.0F, 0, 0.0F}, logits), (Row{0, 1, 0, 0}));
  EXPECT_EQ(warp({1.0F, 0, std::nextafter(1.0F, 0.0F)}, logits), whole);
}

TEST(Sampler, SmallTemperaturesEndInGreedy) {
  const Row logits{1.0F, 2.0F, 2.0F, -1.0F};
  EXPECT_EQ(warp({1e-4F}, logits), (Row{0, 0.5F, 0.5F, 0}));
  // 2 / 1e-39 is beyond float: the greedy limit, not a row of NaN.
  EXPECT_EQ(warp({1e-39F}, logits), (Row{0, 1, 0, 0}));
  EXPECT_EQ(warp({1e-39F}, {-2.0F, -1.0F}), (Row{0, 1}));
}

TEST(Sampler, MinusInfinityExcludesAToken) {
  const Row logits{-kInfinity, 1.0F, -kInfinity, 1.0F};
  for (const SamplingParams& params : {SamplingParams{}, {1.0F, 3, 1.0F}, {1.0F, 0, 0.9999F}, {0.5F, 4, 0.99F}}) {
    EXPECT_EQ(warp(params, logits), (Row{0, 0.5F, 0, 0.5F}));
  }
  EXPECT_EQ(warp({0.0F}, logits), (Row{0, 1, 0, 0}));
}

TEST(Sampler, BrokenLogitsAreTheUsersToMend) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Row& logits : {Row{0, nan, 1}, Row{nan}, Row{1, kInfinity}, Row{-kInfinity, -kInfinity}, Row{0, -nan}}) {
    for (const SamplingParams& params : {SamplingParams{}, {0.0F}, {0.8F, 2, 0.9F}}) {
      EXPECT_THAT(tests::bad_input([&] { warp(params, logits); }), ::testing::HasSubstr("logits are not finite"));
    }
  }
}

/// Hugging Face's definition, by sorting. The mass is summed in the selection's precision, so only a cut that hangs on the last bits of a
/// double could differ.
std::vector<Token> kept_by_sorting(const SamplingParams& params, const Row& weights) {
  std::vector<Token> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) { return weights[a] > weights[b]; });
  if (params.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<std::size_t>(params.top_k)));
  }
  double all = 0;
  for (const Token token : order) {
    all += static_cast<double>(weights[token]);
  }
  double before = 0;
  std::size_t count = 0;
  while (count < order.size() && (count == 0 || before < static_cast<double>(params.top_p) * all)) {
    before += static_cast<double>(weights[order[count++]]);
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

TEST(Sampler, KeepsWhatSortingWouldKeep) {
  std::uint64_t seed = 0;
  for (const std::size_t size : {2U, 15U, 16U, 17U, 333U, 4099U}) {
    for (const double spread : {0.05, 1.0, 6.0}) {
      for (const SamplingParams& params : {SamplingParams{0.8F, 0, 0.95F},
                                           {1.0F, 40, 1.0F},
                                           {1.3F, 40, 0.7F},
                                           {1.0F, 0, 0.3F},
                                           {1.0F, 0, 0.99999F},
                                           {0.3F, 1000, 0.999F}}) {
        const Row logits = random_logits(size, spread, ++seed);
        const Row weights = warp({params.temperature}, logits);
        const Row found = warp(params, logits);
        EXPECT_EQ(kept(found), kept_by_sorting(params, weights)) << size << " " << spread << " " << seed;
        // Each entry and the divisor carry half an ulp.
        EXPECT_NEAR(total(found), 1.0, 0x1p-23);
      }
    }
  }
}

TEST(Sampler, CallsDoNotRememberEachOther) {
  const Row first = random_logits(500, 2.0, 1);
  const Row second = random_logits(70, 2.0, 2);
  const SamplingParams params{0.8F, 50, 0.9F};
  Sampler sampler(params);
  Row out(500);
  sampler.warp(first, out);
  const Row again = warp(params, second);
  Row small(70);
  sampler.warp(second, small);
  EXPECT_EQ(small, again);
  Row repeated(500);
  sampler.warp(first, repeated);
  EXPECT_EQ(repeated, out);
}

TEST(Sampler, ProbabilitiesFromSumsAreTheWarpsOwn) {
  const Row logits = random_logits(1003, 3.0, 7);
  const float temperature = 0.8F;
  const float max = *std::max_element(logits.begin(), logits.end()) / temperature;
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) / static_cast<double>(temperature) - static_cast<double>(max));
  }
  Row out(logits.size());
  probabilities_from_sums(logits, temperature, max, static_cast<float>(sum), out);
  const Row whole = warp({temperature}, logits);
  for (std::size_t x = 0; x < out.size(); ++x) {
    // Both divide the same numerator; the sums differ by the rounding of z (|z| < 32) and of exp.
    EXPECT_NEAR(out[x], whole[x], whole[x] * 64 * 0x1p-24F);
    EXPECT_EQ(probability_from_sums(logits[x] / temperature, max, static_cast<float>(sum)), out[x]);
  }
  Row in_place = logits;
  probabilities_from_sums(in_place, temperature, max, static_cast<float>(sum), in_place);
  EXPECT_EQ(in_place, out);
}

TEST(Sampler, BrokenSumsAreTheUsersToMend) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [max, sum] : {std::pair{1.0F, nan},
                                 {kInfinity, nan},
                                 {-kInfinity, nan},
                                 {kInfinity, 1.0F},
                                 {1.0F, 0.0F},
                                 {1.0F, kInfinity}}) {
    EXPECT_THAT(tests::bad_input([&] { probability_from_sums(0.5F, max, sum); }),
                ::testing::HasSubstr("logits are not finite"))
        << max << ", " << sum;
  }
}

TEST(Draw, FollowsTheRunningSum) {
  const Row weights{0.0F, 0.25F, 0.0F, 0.5F, 0.25F, 0.0F};
  EXPECT_EQ(draw(weights, 0.0), 1);
  EXPECT_EQ(draw(weights, std::nextafter(0.25, 0.0)), 1);
  EXPECT_EQ(draw(weights, 0.25), 3);
  EXPECT_EQ(draw(weights, std::nextafter(0.75, 0.0)), 3);
  EXPECT_EQ(draw(weights, 0.75), 4);
  EXPECT_EQ(draw(weights, 1.0 - 0x1p-53), 4);
}

TEST(Draw, DoesNotNeedNormalisedWeights) {
  const Row weights{3.0F, 0.0F, 1.0F};
  EXPECT_EQ(draw(weights, 0.7499), 0);
  EXPECT_EQ(draw(weights, 0.75), 2);
}

TEST(Draw, AgreesWithOneRunningSumAcrossBlocks) {
  for (const std::size_t size : {1U, 200U, 255U, 256U, 257U, 4097U}) {
    // Multiples of 2^-10: sums are exact in any order, so the token is known exactly.
    Row weights(size);
    for (std::size_t i = 0; i < size; ++i) {
      const double u = uniform({.seed = 5, .position = static_cast<std::uint32_t>(i)});
      weights[i] = u < 0.3 ? 0.0F : static_cast<float>(std::floor(1024 * u)) / 1024;
    }
    const double all = total(weights);
    for (std::uint32_t i = 0; i < 200; ++i) {
      const double u = uniform({.seed = 6, .position = i});
      double running = 0;
      Token expected = 0;
      while ((running += static_cast<double>(weights[expected])) <= u * all) {
        ++expected;
      }
      EXPECT_EQ(draw(weights, u), expected);
    }
  }
}

TEST(Draw, EndsOfTheUnitIntervalNeverLeaveTheSupport) {
  for (const std::size_t size : {1U, 5U, 256U, 513U, 1000U}) {
    for (const std::size_t only : {std::size_t{0}, size / 2, size - 1}) {
      Row weights(size, 0.0F);
      weights[only] = 1e-20F;
      EXPECT_EQ(draw(weights, 0.0), static_cast<Token>(only));
      EXPECT_EQ(draw(weights, 1.0 - 0x1p-53), static_cast<Token>(only));
    }
  }
  // Sums that round: the last weight before the zeros is still the last that can be drawn.
  Row thirds(100, 0.0F);
  std::fill(thirds.begin() + 10, thirds.begin() + 90, 1.0F / 3);
  EXPECT_EQ(draw(thirds, 0.0), 10);
  EXPECT_EQ(draw(thirds, 1.0 - 0x1p-53), 89);
}

TEST(Draw, RefusesWeightsOfNothing) {
  EXPECT_THROW(draw(Row{0.0F, 0.0F}, 0.5), Error);
  EXPECT_THROW(draw(Row{}, 0.5), Error);
  EXPECT_THROW(draw(Row{1.0F}, 1.0), Error);
}

TEST(Draw, FrequenciesPassChiSquare) {
  // 2^20 draws with fixed seeds from a row with zeros. With 7 degrees of freedom chi-square exceeds 40.52 with probability 1e-6: that would
  // have been the false-alarm rate of choosing these seeds.
  const Row weights{0.4F, 0.0F, 0.2F, 0.15F, 0.1F, 0.08F, 0.05F, 0.0F, 0.015F, 0.005F};
  constexpr double kBound = 40.52;
  constexpr std::uint32_t kDraws = 1U << 20;
  for (const auto purpose : {Purpose::kDraft, Purpose::kResample}) {
    std::vector<double> count(weights.size(), 0.0);
    for (std::uint32_t i = 0; i < kDraws; ++i) {
      count[draw(weights, uniform({.seed = 2023, .round = i / 7, .position = i, .purpose = purpose}))] += 1;
    }
    double chi_square = 0;
    for (std::size_t x = 0; x < weights.size(); ++x) {
      const double expected = kDraws * static_cast<double>(weights[x]) / total(weights);
      if (expected == 0.0) {
        EXPECT_EQ(count[x], 0.0);
      } else {
        chi_square += (count[x] - expected) * (count[x] - expected) / expected;
      }
    }
    EXPECT_LT(chi_square, kBound);
  }
}

TEST(Argmax, TakesTheLowestOfEqualEntries) {
  EXPECT_EQ(argmax(Row{1.0F}), 0);
  EXPECT_EQ(argmax(Row{-1.0F, 3.0F, 3.0F, 2.0F}), 1);
  EXPECT_EQ(argmax(Row{-kInfinity, -kInfinity}), 0);
  EXPECT_THROW(argmax(Row{}), Error);
}

}  // namespace
}  // namespace specdec
