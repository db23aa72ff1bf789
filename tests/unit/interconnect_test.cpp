// What a described interconnect takes, against values worked by hand, and how its jitter is distributed.

#include "parallel/interconnect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace specdec {
namespace {

constexpr double kMicrosecond = 1e-6;
constexpr std::size_t kPayload = 16'000;

/// 3 us a step and 0.5 ns a byte.
Interconnect flat(LinkAlgorithm algorithm) {
  Interconnect out;
  out.link = {.algorithm = algorithm, .latency = 3e-6, .bandwidth = 2e9};
  return out;
}

/// Nodes of four: 1 us a step and 0.125 ns a byte inside, all to all; between them rings as flat().
Interconnect of_nodes() {
  Interconnect out = flat(LinkAlgorithm::kRing);
  out.node = Link{.algorithm = LinkAlgorithm::kOneShot, .latency = 1e-6, .bandwidth = 8e9};
  out.ranks_per_node = 4;
  return out;
}

/// A few roundings of additions and products of doubles.
void expect_microseconds(double seconds, double expected) {
  EXPECT_NEAR(seconds / kMicrosecond, expected, 16 * 0x1p-53 * expected);
}

TEST(Interconnect, RingAddsUpStepsAndParts) {
  const Interconnect ring = flat(LinkAlgorithm::kRing);
  expect_microseconds(ring.all_reduce(kPayload, 8), 14 * 3 + 14);  // 14 steps, 14/8 of 8 us
  expect_microseconds(ring.all_reduce(kPayload, 5), 8 * 3 + 12.8);
  expect_microseconds(ring.all_reduce(kPayload, 2), 2 * 3 + 8);
  expect_microseconds(ring.all_gather(2000, 8), 7 * 3 + 7);
  expect_microseconds(ring.gather(2000, 8), 7 * 3 + 7);
  expect_microseconds(ring.broadcast(kPayload, 8), 7 * 3 + 8);
  expect_microseconds(ring.barrier(8), 14 * 3);
}

TEST(Interconnect, TreeGoesUpAndDownItsLevels) {
  const Interconnect tree = flat(LinkAlgorithm::kTree);
  expect_microseconds(tree.all_reduce(kPayload, 8), 6 * 3 + 16);
  expect_microseconds(tree.all_reduce(kPayload, 5), 6 * 3 + 16);
  expect_microseconds(tree.all_reduce(kPayload, 4), 4 * 3 + 16);
  expect_microseconds(tree.all_reduce(kPayload, 2), 2 * 3 + 16);
  expect_microseconds(tree.all_gather(2000, 8), 3 * 3 + 7);
  expect_microseconds(tree.broadcast(kPayload, 8), 3 * 3 + 8);
  expect_microseconds(tree.barrier(8), 6 * 3);
}

TEST(Interconnect, OneShotSendsEverythingToEverybody) {
  const Interconnect all = flat(LinkAlgorithm::kOneShot);
  expect_microseconds(all.all_reduce(kPayload, 8), 3 + 56);
  expect_microseconds(all.all_reduce(kPayload, 2), 3 + 8);
  expect_microseconds(all.all_gather(2000, 8), 3 + 7);
  expect_microseconds(all.broadcast(kPayload, 8), 3 + 56);
  expect_microseconds(all.barrier(8), 3);
}

TEST(Interconnect, NodesReduceInsideThenBetween) {
  const Interconnect nodes = of_nodes();
  // Inside: reduce-scatter and all-gather of 3/4 of 2 us each. Between: 4000 bytes, 2 us, on a ring of two, then of three.
  expect_microseconds(nodes.all_reduce(kPayload, 8), 2 * (1 + 1.5) + (2 * 3 + 2));
  expect_microseconds(nodes.all_reduce(kPayload, 12), 2 * (1 + 1.5) + (4 * 3 + 8.0 / 3));
  expect_microseconds(nodes.all_reduce(kPayload, 6), 2 * (1 + 1.5) + (2 * 3 + 2));  // the second node is half full
  expect_microseconds(nodes.all_reduce(kPayload, 4), 1 + 6);                        // one node
  expect_microseconds(nodes.all_gather(2000, 8), (3 + 1) + (1 + 1.5));
  expect_microseconds(nodes.broadcast(kPayload, 8), (3 + 8) + (1 + 6));
  expect_microseconds(nodes.barrier(8), 2 * 1 + 2 * 3);
}

TEST(Interconnect, OverheadComesOnceAndIsCalibratedToo) {
  Interconnect nodes = of_nodes();
  nodes.overhead = 2e-6;
  nodes.multiplier = 1.5;
  expect_microseconds(nodes.all_reduce(kPayload, 8), 1.5 * (2 + 13));
  expect_microseconds(nodes.all_gather(2000, 8), 1.5 * (2 + 6.5));
  expect_microseconds(nodes.broadcast(kPayload, 8), 1.5 * (2 + 18));
  expect_microseconds(nodes.barrier(8), 1.5 * (2 + 8));
}

TEST(Interconnect, StatedRanksStandForTheGroups) {
  Interconnect ring = flat(LinkAlgorithm::kRing);
  ring.ranks = 16;
  expect_microseconds(ring.all_reduce(kPayload, 2), 30 * 3 + 15);
  expect_microseconds(ring.all_reduce(kPayload, 8), 30 * 3 + 15);
  expect_microseconds(ring.all_gather(2000, 2), 15 * 3 + 1.875);  // 15/16 of what two ranks have
}

TEST(Interconnect, OneRankWaitsForNobody) {
  Interconnect nodes = of_nodes();
  nodes.overhead = 1;
  nodes.ranks = 16;
  for (const double seconds : {nodes.all_reduce(kPayload, 1), nodes.all_gather(kPayload, 1), nodes.gather(kPayload, 1),
                               nodes.broadcast(kPayload, 1), nodes.barrier(1), nodes.with_jitter(0, 1, 1)}) {
    EXPECT_EQ(seconds, 0);
  }
}

/// Kolmogorov and Smirnov's distance of `sample` from `cdf`, times the root of its size.
double scaled_distance(std::vector<double> sample, const std::function<double(double)>& cdf) {
  std::ranges::sort(sample);
  const auto n = static_cast<double>(sample.size());
  double distance = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double expected = cdf(sample[i]);
    distance = std::max({distance, expected - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - expected});
  }
  return distance * std::sqrt(n);
}

// Exceeded with probability 2 exp(-2 d^2) = 1e-6, were the draws random; the seeds are fixed, so that each test passes or fails for ever.
constexpr double kDistanceLimit = 2.694;
constexpr double kNormalLimit = 4.892;  // standard deviations, two-sided 1e-6
constexpr int kSamples = 100'000;

TEST(Jitter, NoneLeavesTheTimeAsItIs) {
  const Interconnect steady;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(steady.with_jitter(37.5e-6, 7, i), 37.5e-6);
  }
}

TEST(Jitter, IsAFunctionOfSeedAndNumberAlone) {
  Interconnect one;
  one.jitter = {.sigma = 0.3, .tail_probability = 0.5, .tail_mean = 1e-3};
  const Interconnect other = one;
  EXPECT_NE(one.with_jitter(1e-5, 1, 1), one.with_jitter(1e-5, 1, 2));
  EXPECT_NE(one.with_jitter(1e-5, 1, 1), one.with_jitter(1e-5, 2, 1));
  EXPECT_NE(one.with_jitter(1e-5, 1, 1), one.with_jitter(1e-5, 1 + (1ULL << 32), 1));
  EXPECT_NE(one.with_jitter(1e-5, 1, 1), one.with_jitter(1e-5, 1, 1 + (1ULL << 32)));
  for (std::uint64_t i = 100; i > 0; --i) {
    EXPECT_EQ(one.with_jitter(1e-5, 3, i), other.with_jitter(1e-5, 3, i));
  }
}

TEST(Jitter, FactorIsLogNormalAroundTheMedian) {
  Interconnect noisy;
  noisy.jitter.sigma = 0.25;
  std::vector<double> sample(kSamples);
  for (int i = 0; i < kSamples; ++i) {
    sample[i] = std::log(noisy.with_jitter(2e-5, 11, i) / 2e-5) / 0.25;
  }
  EXPECT_LT(scaled_distance(sample, [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }), kDistanceLimit);
}

TEST(Jitter, DelaysAreAsRareAsSaidAndExponential) {
  Interconnect noisy;
  noisy.jitter = {.sigma = 0, .tail_probability = 0.2, .tail_mean = 5e-4};
  std::vector<double> delays;
  for (int i = 0; i < kSamples; ++i) {
    const double seconds = noisy.with_jitter(2e-5, 12, i);
    EXPECT_GE(seconds, 2e-5);
    if (seconds != 2e-5) {
      delays.push_back(seconds - 2e-5);
    }
  }
  const double deviation = std::sqrt(kSamples * 0.2 * 0.8);
  EXPECT_LT(std::abs(static_cast<double>(delays.size()) - kSamples * 0.2), kNormalLimit * deviation);
  EXPECT_LT(scaled_distance(delays, [](double x) { return 1 - std::exp(-x / 5e-4); }), kDistanceLimit);
}

TEST(Jitter, DelaysDoNotDependOnTheFactor) {
  Interconnect noisy;
  noisy.jitter = {
      .sigma = 0.1, .tail_probability = 0.5, .tail_mean = 1};  // a second is nothing that the factor reaches
  double sum_of_delayed = 0;
  int delayed = 0;
  Interconnect steady = noisy;
  steady.jitter.tail_probability = 0;
  for (int i = 0; i < kSamples; ++i) {
    if (noisy.with_jitter(1e-6, 13, i) > 1e-4) {
      sum_of_delayed += std::log(steady.with_jitter(1e-6, 13, i) / 1e-6) / 0.1;
      ++delayed;
    }
  }
  EXPECT_LT(std::abs(sum_of_delayed), kNormalLimit * std::sqrt(delayed));
}

}  // namespace
}  // namespace specdec
