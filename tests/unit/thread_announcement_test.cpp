#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "backend/cpu/announcement.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

/// Sends back each number that it is told, with what came with it, until that is 0.
class Echo {
 public:
  Announcement<std::uint64_t> told;
  std::atomic<std::uint64_t> heard{0};
  std::atomic<std::uint32_t> number{0};

  void run() {
    for (std::uint32_t seen = 0;;) {
      seen = told.await_other_than(seen);
      const std::uint64_t message = told.message();
      heard = message;
      number = seen;
      if (message == 0) return;
    }
  }
  bool answers(std::uint32_t expected, Clock::duration within) const {
    const auto end = Clock::now() + within;
    while (number != expected && Clock::now() < end) std::this_thread::yield();
    return number == expected;
  }
};

TEST(Announcement, ComesWithItsMessage) {
  Echo echo;
  std::thread thread([&] { echo.run(); });
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    echo.told.announce(i, i * std::uint64_t{0x100000001});
    echo.told.settle();
    EXPECT_TRUE(echo.answers(i, std::chrono::seconds(20)));
    EXPECT_EQ(echo.heard, i * std::uint64_t{0x100000001});
  }
  echo.told.announce(1001, 0);
  echo.told.settle();
  thread.join();
}

/// Announced all around the moment at which the other falls asleep.
TEST(Announcement, WakesWhoIsFallingAsleep) {
  Echo echo;
  std::thread thread([&] { echo.run(); });
  std::uint32_t number = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto at = Clock::now() + std::chrono::nanoseconds(20000 + round % 500 * 500);
    while (Clock::now() < at) {
    }
    echo.told.announce(++number, 1);
    echo.told.settle();
    if (!echo.answers(number, std::chrono::seconds(20))) {
      ADD_FAILURE() << "round " << round << ": slept on";
      break;
    }
  }
  echo.told.announce(++number, 0);
  echo.told.settle();
  thread.join();
}

}  // namespace
}  // namespace specdec
