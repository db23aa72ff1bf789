#include "tests/support/emulated_team.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/error.h"

namespace specdec {
namespace {

TEST(EmulatedTeam, EveryThreadSeesWhatAllWroteBeforeABarrier) {
  constexpr int kThreads = 70;
  EmulatedTeam team(kThreads);
  EmulatedTeam::Barrier barrier(team, kThreads);
  std::vector<int> values(kThreads);
  std::vector<int> sums(kThreads);
  team.run([&](int thread) {
    for (int round = 1; round <= 3; ++round) {
      values[thread] = round * thread;
      barrier.arrive_and_wait();
      int sum = 0;
      for (const int value : values) {
        sum += value;
      }
      sums[thread] = sum;
      barrier.arrive_and_wait();
    }
  });
  EXPECT_EQ(sums, std::vector<int>(kThreads, 3 * kThreads * (kThreads - 1) / 2));
}

TEST(EmulatedTeam, HalvesMeetAtBarriersOfTheirOwn) {
  EmulatedTeam team(8);
  EmulatedTeam::Barrier lower(team, 4);
  EmulatedTeam::Barrier upper(team, 4);
  std::vector<int> meetings(8);
  team.run([&](int thread) {
    for (int round = 0; round < (thread < 4 ? 2 : 5); ++round) {
      (thread < 4 ? lower : upper).arrive_and_wait();
      ++meetings[thread];
    }
  });
  EXPECT_EQ(meetings, (std::vector<int>{2, 2, 2, 2, 5, 5, 5, 5}));
}

}  // namespace
}  // namespace specdec
