#include "runtime/pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace specdec {
namespace {

/// `jobs` of each of two points, the second four times as long, in turns; from `slow_from` on all take `slower`.
std::vector<PacedJob> in_turns(int jobs, int slow_from, double slower) {
  std::vector<PacedJob> all;
  for (int i = 0; i < jobs; ++i) {
    for (const std::size_t point : {0, 1}) {
      all.push_back({.point = point,
                     .loop_ms = (point == 0 ? 1 : 4) * (i < slow_from ? 1 : slower),
                     .ended = std::to_string(1000 + i)});
    }
  }
  return all;
}

TEST(Pace, IsThatOfMinutesAndNotOfPoints) {
  std::vector<PacedJob> jobs = in_turns(96, 72, 1.5);
  std::ranges::stable_sort(jobs, {}, [](const PacedJob& job) { return job.ended.back(); });  // as points have them
  const std::optional<Pace> pace = pace_of(jobs);
  ASSERT_TRUE(pace);
  EXPECT_EQ(pace->parts, 8);
  // A quarter of the jobs is slow, and the quicker half has none of them.
  EXPECT_NEAR(pace->least, 1, 1e-9);
  EXPECT_NEAR(pace->most, 1.5, 1e-9);
}

TEST(Pace, OfASteadyMachineIsOne) {
  const std::optional<Pace> pace = pace_of(in_turns(1000, 1000, 1));
  ASSERT_TRUE(pace);
  EXPECT_EQ(pace->parts, 16);
  EXPECT_NEAR(pace->least, 1, 1e-9);
  EXPECT_NEAR(pace->most, 1, 1e-9);
}

TEST(Pace, OfFewJobsIsNotKnown) {
  EXPECT_TRUE(pace_of(in_turns(24, 24, 1)));
  EXPECT_FALSE(pace_of(in_turns(23, 23, 1)));
  EXPECT_FALSE(pace_of({}));
}

}  // namespace
}  // namespace specdec
