#include "parallel/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

#include "parallel/bench_turns.h"
#include "parallel/thread_communicator.h"

namespace specdec {
namespace {

TEST(Latency, PercentilesAreTimesThatDidOccur) {
  std::vector<double> seconds(100);
  std::iota(seconds.begin(), seconds.end(), 1.0);  // 1 .. 100
  std::shuffle(seconds.begin(), seconds.end(), std::mt19937(1));
  const LatencySummary summary = summarise(seconds);
  EXPECT_EQ(summary.p50, 50);
  EXPECT_EQ(summary.p90, 90);
  EXPECT_EQ(summary.p99, 99);
  EXPECT_EQ(summary.max, 100);
  EXPECT_EQ(summary.mean, 50.5);
}

TEST(Latency, FewSamples) {
  EXPECT_EQ(summarise({}).max, 0);
  const LatencySummary one = summarise({3});
  EXPECT_EQ(one.p50, 3);
  EXPECT_EQ(one.p99, 3);
  const LatencySummary three = summarise({9, 1, 2});
  EXPECT_EQ(three.p50, 2);
  EXPECT_EQ(three.p90, 9);
  EXPECT_EQ(three.mean, 4);
}

TEST(Latency, TheMeanOfEqualSamplesIsTheirs) {
  for (const double sample : {4.6e-8, 0.1, 0.3, 1.1}) {
    for (std::size_t count = 1; count < 50; ++count) {
      EXPECT_EQ(summarise(std::vector<double>(count, sample)).mean, sample) << count;
    }
  }
}

TEST(Latency, BandwidthsAsNcclTestsDefineThem) {
  EXPECT_EQ(algorithm_bandwidth(1000, 0.5), 2000);
  EXPECT_EQ(algorithm_bandwidth(1000, 0), 0);
  EXPECT_EQ(bus_bandwidth(1000, 0.5, 1), 0);
  EXPECT_EQ(bus_bandwidth(1000, 0.5, 2), 2000);
  EXPECT_EQ(bus_bandwidth(1000, 0.5, 8), 3500);
}

TEST(Latency, AnIterationTakesAsLongAsItsSlowestRank) {
  run_ranks(3, [](Communicator& group) {
    std::vector<double> mine = {1, 1, 1};
    mine[group.rank()] = 10.0 + group.rank();
    EXPECT_EQ(maximum_over_ranks(group, mine), (std::vector<double>{10, 11, 12}));
    EXPECT_TRUE(maximum_over_ranks(group, std::vector<double>{}).empty());
    EXPECT_EQ(maximum_over_ranks(group, std::int64_t{group.rank()}), 2);
    EXPECT_EQ(sum_over_ranks(group, std::int64_t{group.rank()}), 3);
  });
}

std::vector<int> runs_of_each(const std::vector<BenchBlock>& order, std::size_t contenders) {
  std::vector<int> runs(contenders);
  for (const BenchBlock& block : order) {
    runs[block.contender] += block.runs;
  }
  return runs;
}

TEST(BenchTurns, EachRunsEquallyOftenForwardsAndBackwards) {
  for (const int iterations : {1, 2, 19, 20, 21, 1000, 4999}) {
    EXPECT_EQ(runs_of_each(interleaved(3, iterations), 3), std::vector<int>(3, iterations)) << iterations;
  }
  const std::vector<BenchBlock> order = interleaved(2, 4);
  std::vector<std::size_t> who;
  for (const BenchBlock& block : order) {
    who.push_back(block.contender);
  }
  EXPECT_EQ(who, (std::vector<std::size_t>{0, 1, 1, 0, 0, 1, 1, 0}));
}

TEST(BenchTurns, IterationsFitTheTime) {
  EXPECT_EQ(iterations_for({.iterations = 7, .warmup = {}}, {1.0}), 7);
  EXPECT_EQ(iterations_for({.iterations = {}, .warmup = {}, .seconds = 1}, {0.001, 0.003}), 500);
  EXPECT_EQ(iterations_for({.iterations = {}, .warmup = {}, .seconds = 1}, {5.0}), 10) << "never fewer";
  EXPECT_EQ(iterations_for({.iterations = {}, .warmup = {}, .seconds = 1}, {0.0}), 5000) << "nor more";
}

struct Runs {
  int timed = 0;
  int untimed = 0;
};

TEST(BenchTurns, WarmsUpThenTimesAsOftenAsAsked) {
  run_ranks(2, [](Communicator& group) {
    std::vector<Runs> runs(2);
    const auto count = [&](std::size_t contender, int n, bool timed) {
      (timed ? runs[contender].timed : runs[contender].untimed) += n;
    };
    EXPECT_TRUE(take_turns(group, 2, {.iterations = 40, .warmup = 3}, count, [] { return false; }));
    for (const Runs& mine : runs) {
      EXPECT_EQ(mine.timed, 40);
      EXPECT_GE(mine.untimed, 3);
    }
  });
}

TEST(BenchTurns, StopsOnAllRanksWhenRankZeroIsAskedTo) {
  run_ranks(2, [](Communicator& group) {
    int timed = 0;
    const auto count = [&](std::size_t, int n, bool counts) { timed += counts ? n : 0; };
    const auto stop = [&] { return group.rank() == 0 && timed >= 10; };
    EXPECT_FALSE(take_turns(group, 2, {.iterations = 100, .warmup = 0}, count, stop));
    EXPECT_EQ(timed, 10);
  });
}

}  // namespace
}  // namespace specdec
