#include "backend/cpu/core_distance.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "backend/cpu/isa.h"

namespace specdec {
namespace {

constexpr std::uint32_t kGivenUp = ~std::uint32_t{0};
/// Some tens of microseconds: hundreds of times what a line takes.
constexpr int kPatience = 20'000;

/// Whether it came to `mine`.
bool await(std::atomic<std::uint32_t>& turn, std::uint32_t mine) {
  for (int spins = 0; spins < kPatience; ++spins) {
    const std::uint32_t now = turn.load(std::memory_order_acquire);
    if (now == mine) return true;
    if (now == kGivenUp) return false;
  }
  turn.store(kGivenUp, std::memory_order_release);
  return false;
}

/// Takes every second turn from `first` on, each as soon as it is there.
bool take_turns(std::atomic<std::uint32_t>& turn, std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t mine = first; mine < end; mine += 2) {
    if (!await(turn, mine)) return false;
    turn.store(mine + 1, std::memory_order_release);
  }
  return true;
}

}  // namespace

std::optional<double> line_seconds(ThreadPool& pool, int other, int turns, int tries) {
  if (pool.size() == 1) return {};
  const auto end = static_cast<std::uint32_t>(turns) + 2;
  std::optional<double> least;
  for (int i = 0; i < tries; ++i) {
    alignas(128) std::atomic<std::uint32_t> turn{0};
    pool.run([&](int thread) {
      if (thread == other) take_turns(turn, 1, end);
      if (thread != 0) return;
      turn.store(1, std::memory_order_release);  // the other is there when it answers
      if (!await(turn, 2)) return;
      const auto start = std::chrono::steady_clock::now();
      if (!take_turns(turn, 2, end) || !await(turn, end)) return;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / turns;
      least = std::min(least.value_or(seconds), seconds);
    });
  }
  return least;
}

CoreDistance::CoreDistance(ThreadPool& pool) : pool_(pool), matters_(pool.size() > 1 && has_costly_shared_lines()) {}

void CoreDistance::look() {
  if (!matters_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kPeriod;
  constexpr int kTurns = 16;
  constexpr int kTries = 3;
  bool measured = true;
  const int near = count_near(pool_.size(), [&](int thread) {
    const auto seconds = line_seconds(pool_, thread, kTurns, kTries);
    measured = measured && seconds.has_value();
    return seconds.value_or(0) > kFarSeconds;
  });
  if (measured) pool_.set_near_threads(near);
}

}  // namespace specdec
