// A rank that waits leaves its core to whoever works: it looks so many times, and then sleeps.
#include "parallel/waiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace specdec {
namespace {

/// How often a rank looks in a wait of a fifth of a second.
int looks(int ranks, int cores, Waiter::Expected expected) {
  Waiter waiter(ranks, cores);
  const auto bell = std::make_unique<Doorbell>();
  std::atomic<bool> come = false;
  std::atomic<int> looked = 0;
  std::thread rank([&] {
    waiter.wait(*bell, expected, [&] {
      ++looked;
      return come.load();
    });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  come = true;
  bell->ring();
  rank.join();
  return looked;
}

TEST(Waiter, SleepsAtOnceWhereRankZeroMayWantTheCore) { EXPECT_LE(looks(4, 2, Waiter::Expected::kLong), 40); }

TEST(Waiter, SleepsSoonOnASharedCore) { EXPECT_LE(looks(4, 2, Waiter::Expected::kShort), 150); }

TEST(Waiter, SleepsAfterAFewMillisecondsOnACoreOfItsOwn) {
  EXPECT_LE(looks(2, 2, Waiter::Expected::kShort), 3000);
  EXPECT_LE(looks(2, 2, Waiter::Expected::kLong), 12'000);
}

}  // namespace
}  // namespace specdec
