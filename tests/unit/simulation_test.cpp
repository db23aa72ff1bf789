/// Loops that are played one after another: closed forms where there are any, and real maxima of many ranks.
#include "runtime/simulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/hardware_load.h"
#include "runtime/theory.h"
#include "tests/support/chen_et_al.h"

namespace specdec {
namespace {

using tests::chinchilla;
using tests::tpu;

TEST(Simulation, WithoutJitterItIsTheClosedForm) {
  for (const Placement placement : kPlacements) {
    const PredictedJob job = chinchilla(16, placement);
    for (const std::int64_t k : {0, 1, 4, 7}) {
      const std::int64_t ks[] = {k};
      const Prediction expected = predict(tpu(), job, 0.8, ks).front();
      const Simulated found = simulate(tpu(), job, 0.8, k, 20'000, 1);
      EXPECT_NEAR(found.seconds_per_token, expected.token.mean, 0.01 * expected.token.mean);
      if (placement == Placement::kDedicated && k > 0) continue;  // whose loops are of several kinds
      // Of two kinds, the longer one after a block that stood in full.
      const LoopWork work = loop_work(tpu(), job, k);
      const double longer = work.first_after_all.total() - work.first_draft.total();
      const double after_all = k > 0 ? std::pow(0.8, static_cast<double>(k)) : 0;
      const double shorter = expected.loop.total() - after_all * longer;
      const double close = 1e-9 * shorter;
      EXPECT_NEAR(found.loop.p50, shorter + (after_all > 0.5 ? longer : 0), close);
      EXPECT_NEAR(found.loop.p99, shorter + longer, close);
      EXPECT_NEAR(found.token.p50, expected.token.percentiles.p50, longer + close);
      EXPECT_NEAR(found.token.p99, expected.token.percentiles.p99, longer + close);
    }
  }
}

TEST(Simulation, LoopsAfterABlockThatStoodInFullAndTokensThatStandAreTheClosedForms) {
  Hardware hardware = tpu();
  hardware.cache = {.rate = 4e9, .rows_cost = {1, 3}};
  hardware.cached_bytes = 1e15;
  hardware.accepted_seconds = 0.2;
  const PredictedJob job = chinchilla(1, Placement::kRank0);
  const std::int64_t ks[] = {2};
  const Prediction expected = predict(hardware, job, 0.5, ks).front();
  const Simulated found = simulate(hardware, job, 0.5, 2, 50'000, 1);
  EXPECT_NEAR(found.seconds_per_token, expected.token.mean, 0.01 * expected.token.mean);
  const LoopWork work = loop_work(hardware, job, 2);
  EXPECT_NEAR(found.loop.p90 - found.loop.p50, work.first_after_all.total() - work.first_draft.total(), 0.41)
      << "a quarter of the loops follow one of which all stood";
}

TEST(Simulation, NormalQuantileInvertsTheDistribution) {
  for (const double p : {1e-12, 1e-4, 0.02, 0.0243, 0.3, 0.5, 0.7, 0.97, 0.98, 1 - 1e-4, 1 - 1e-10}) {
    const double z = normal_quantile(p);
    const double back = 0.5 * std::erfc(-z / std::sqrt(2.0));
    EXPECT_NEAR(back / p, 1, 1e-6) << p;
  }
  EXPECT_EQ(normal_quantile(0.5), 0);
}

TEST(Simulation, TheLastOfManyRanksIsTheMaximumOfAsManyDraws) {
  Hardware hardware = tpu();
  hardware.interconnect.overhead = 0;
  hardware.disturbance.compute = {.sigma = 0.2, .tail_probability = 0, .tail_mean = 0};
  constexpr int kRanks = 16;
  const PredictedJob job = chinchilla(kRanks);
  const Simulated found = simulate(hardware, job, 0, 0, 400, 3);
  // The same by drawing every rank.
  const PassTime pass = loop_work(hardware, job, 0).score;
  const auto segments = static_cast<double>(pass.all_reduces + 1);
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> factor(0, 0.2);
  double sum = 0;
  constexpr int kLoops = 400;
  for (int loop = 0; loop < kLoops; ++loop) {
    for (int i = 0; i < static_cast<int>(segments); ++i) {
      double last = 0;
      for (int rank = 0; rank < kRanks; ++rank) last = std::max(last, factor(random));
      sum += pass.work / segments * last;
    }
  }
  const double expected = sum / kLoops + pass.meeting + hardware.loop_seconds;
  EXPECT_NEAR(found.loop.p50, expected, 0.005 * expected);
}

TEST(Simulation, DelaysOfManyRanksAddUp) {
  Hardware hardware = tpu();
  hardware.disturbance.compute = {.sigma = 0, .tail_probability = 0.001, .tail_mean = 1e-3};
  const PredictedJob job = chinchilla(16);
  const double quiet = simulate(tpu(), job, 0, 0, 1, 1).loop.p50;
  double sum = 0;
  constexpr int kLoops = 3000;
  for (int i = 0; i < kLoops; ++i) sum += simulate(hardware, job, 0, 0, 1, static_cast<std::uint64_t>(i)).loop.p50;
  // Of 16 ranks hardly two are late at once: 161 stretches, each with 16 chances in 1000 of a mean delay of 1 ms, but for those two.
  const double expected = 161 * 16 * 0.001 * 1e-3;
  EXPECT_NEAR(sum / kLoops - quiet, expected, 0.05 * expected);
}

TEST(Simulation, AStragglerIsWaitedForByAll) {
  Hardware hardware = tpu();
  hardware.disturbance.stragglers = 1;
  hardware.disturbance.straggler_factor = 1.5;
  const PredictedJob job = chinchilla(16);
  const PassTime pass = loop_work(tpu(), job, 0).score;
  const double quiet = simulate(tpu(), job, 0, 0, 1, 1).loop.p50;
  EXPECT_NEAR(simulate(hardware, job, 0, 0, 1, 1).loop.p50, quiet + 0.5 * pass.work, 1e-9);
}

TEST(Simulation, JitterOfTheInterconnectShowsInPercentiles) {
  Hardware hardware = tpu();
  hardware.interconnect.jitter = {.sigma = 0, .tail_probability = 0.0005, .tail_mean = 5e-3};
  const Simulated found = simulate(hardware, chinchilla(16), 0.8, 4, 5000, 2);
  const Simulated quiet = simulate(tpu(), chinchilla(16), 0.8, 4, 5000, 2);
  EXPECT_GT(found.loop.p99, 1.5 * quiet.loop.p99);
  EXPECT_NEAR(found.loop.p50, quiet.loop.p50, 0.02 * quiet.loop.p50);
}

/// Of which nobody draws thousands of numbers: the largest is drawn as one.
TEST(Simulation, OfThousandsOfRanksTheLatestIsWaitedFor) {
  const PredictedJob job = chinchilla(4096);
  Hardware quiet = tpu();
  quiet.interconnect.ranks.reset();
  Hardware hardware = quiet;
  constexpr double kProbability = 1e-7;
  hardware.disturbance.compute = {.tail_probability = kProbability, .tail_mean = 1e-3};
  const double alone = simulate(quiet, job, 0, 0, 1, 1).loop.p50;
  double sum = 0;
  constexpr int kLoops = 20000;
  for (int i = 0; i < kLoops; ++i) sum += simulate(hardware, job, 0, 0, 1, static_cast<std::uint64_t>(i)).loop.p50;
  const double expected = 161 * 4096 * kProbability * 1e-3;
  EXPECT_NEAR(sum / kLoops - alone, expected, 0.15 * expected);
}

TEST(Simulation, ThousandsOfRanksAndTheSameSeed) {
  Hardware hardware = tpu();
  hardware.interconnect.ranks.reset();
  hardware.disturbance.compute = {.sigma = 0.05, .tail_probability = 1e-6, .tail_mean = 1e-3};
  const Simulated one = simulate(hardware, chinchilla(4096), 0.8, 4, 300, 5);
  const Simulated two = simulate(hardware, chinchilla(4096), 0.8, 4, 300, 5);
  EXPECT_EQ(one.loop.p99, two.loop.p99);
  EXPECT_GT(one.loop.p50, 0);
}

}  // namespace
}  // namespace specdec
