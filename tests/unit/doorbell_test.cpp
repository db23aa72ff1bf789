#include "parallel/doorbell.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace specdec {
namespace {

/// Two threads (or more) that wait for each other's numbers, as ranks do. A wake-up that is lost costs a whole limit, however fast or slow the
/// machine is, and none may be.
TEST(Doorbell, LosesNoWakeUp) {
  constexpr int kThreads = 5;
  constexpr std::uint32_t kSteps = 10'000;
  constexpr std::chrono::seconds kForEver{20};
  struct alignas(128) Number {
    std::atomic<std::uint32_t> value{0};
  };
  std::array<Number, kThreads> come;
  Doorbell bell;
  std::atomic<int> lost{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 dice(static_cast<unsigned>(t));
      for (std::uint32_t step = 1; step <= kSteps; ++step) {
        for (auto pause = dice() % 64; pause > 0; --pause) {  // another moment each time
          std::atomic_signal_fence(std::memory_order_seq_cst);
        }
        come[t].value.store(step, std::memory_order_seq_cst);
        const auto all_here = [&] {
          return lost != 0 || std::ranges::all_of(come, [&](const Number& n) {
                   return n.value.load(std::memory_order_seq_cst) >= step;
                 });
        };
        if (all_here()) {
          bell.ring();
          continue;
        }
        const auto began = std::chrono::steady_clock::now();
        bell.sleep_until(all_here, kForEver);
        lost += std::chrono::steady_clock::now() - began >= kForEver ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(lost, 0);
}

TEST(Doorbell, ASleeperThatNobodyRingsForLooksAgain) {
  Doorbell bell;
  std::atomic<bool> ready{false};
  std::jthread forgetful([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ready = true;  // and dies before it rings
  });
  bell.sleep_until([&] { return ready.load(); });
}

}  // namespace
}  // namespace specdec
