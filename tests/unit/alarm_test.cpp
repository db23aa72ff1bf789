/// Waiting for a moment: whether a thread sleeps shows in how often it gave its core up by itself.
#include "parallel/alarm.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>

#include "parallel/host_clock.h"

namespace specdec {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

long sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// In a wait for a moment so many milliseconds away.
long sleeps_in(Alarm& alarm, std::int64_t milliseconds, Alarm::Meanwhile meanwhile = Alarm::Meanwhile::kAllWait) {
  const std::int64_t until = host_nanoseconds() + milliseconds * kMillisecond;
  const long before = sleeps();
  EXPECT_GE(alarm.wait(until, meanwhile), until);
  EXPECT_GE(host_nanoseconds(), until);
  return sleeps() - before;
}

TEST(Alarm, WithACoreOfItsOwnARankSleepsOnlyBeforeAMomentThatIsFar) {
  Alarm alarm(1, 1);
  EXPECT_EQ(sleeps_in(alarm, 5), 0) << "a virtual core that slept is not always there again in time";
  EXPECT_GT(sleeps_in(alarm, 80), 0);
}

TEST(Alarm, WhereRanksShareCoresItSleeps) {
  Alarm alarm(2, 1);
  EXPECT_GT(sleeps_in(alarm, 5), 0);
  EXPECT_GT(sleeps_in(alarm, 5, Alarm::Meanwhile::kOthersWork), 0);
}

TEST(Alarm, DoesNotWaitForWhatIsPast) {
  Alarm alarm(1, 1);
  EXPECT_EQ(sleeps_in(alarm, -5), 0);
}

}  // namespace
}  // namespace specdec
