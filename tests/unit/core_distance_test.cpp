#include "backend/cpu/core_distance.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <bit>
#include <cstddef>
#include <optional>
#include <vector>

namespace specdec {
namespace {

TEST(CoreDistance, NearThreadsAreCountedByFewLooks) {
  for (int team = 1; team <= 33; ++team) {
    for (int near = 1; near <= team; ++near) {
      int looks = 0;
      const auto is_far = [&](int thread) {
        ++looks;
        EXPECT_TRUE(0 < thread && thread < team);
        return thread >= near;
      };
      EXPECT_EQ(count_near(team, is_far), near) << "of " << team;
      EXPECT_LE(looks, near == team ? 1 : 1 + std::bit_width(static_cast<unsigned>(team))) << near << " of " << team;
    }
  }
}

TEST(CoreDistance, OfOneThreadThereIsNone) {
  ThreadPool pool(1);
  EXPECT_EQ(line_seconds(pool, pool.size() - 1, 16, 3), std::nullopt);
}

TEST(CoreDistance, IsTheTimeOfALineBetweenTheFirstAndTheLast) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    // Neighbours may keep a core from the team for a while.
    std::optional<double> seconds;
    for (int tries = 0; !seconds && tries < 10'000; ++tries) seconds = line_seconds(pool, pool.size() - 1, 16, 3);
    ASSERT_TRUE(seconds) << threads << " threads";
    EXPECT_GT(*seconds, 1e-9);
  }
}

TEST(CoreDistance, IsGivenUpWhereBothShareACore) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(own_cores().front(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  {
    ThreadPool pool(2);  // which inherits it
    // Each turn would take as long as the scheduler lets a thread run: it returns all the same, and so does the next round.
    for (int i = 0; i < 3; ++i) EXPECT_EQ(line_seconds(pool, pool.size() - 1, 16, 3), std::nullopt);
    std::vector<int> calls(2);
    pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
    EXPECT_EQ(calls, std::vector<int>(2, 1));
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace specdec
