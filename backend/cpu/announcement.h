#pragma once

#include <atomic>
#include <cstdint>

namespace specdec {

/// A number that one thread announces together with a message, and that others await: awake for about 100 us, asleep after that.
///
/// Both lie on one line, so that they come to another core together, and announcing has no locked operation: that would wait until every line that was
/// written before has been had back from other cores, up to 200 ns each where these are far. So it may miss who is just falling asleep; who
/// announces says settle() when nothing waits for it any more, and whoever fell asleep is woken then at the latest.
template <typename Message>
class alignas(64) Announcement {
 public:
  /// The last one, by whoever announces; what came with it, by whoever has awaited it until the next one.
  std::uint32_t number() const { return number_.load(std::memory_order_relaxed); }
  const Message& message() const { return message_; }

  /// Nobody may still read the message before.
  void announce(std::uint32_t number, const Message& message) {
    message_ = message;
    number_.store(number, std::memory_order_release);
    if (sleepers_.load(std::memory_order_relaxed) != 0) number_.notify_all();
  }

  void settle() {
    // Either this comes after the fetch_add of who falls asleep and sees it, or that one sees the number after it.
    if (sleepers_.fetch_add(0, std::memory_order_acq_rel) != 0) number_.notify_all();
  }

  /// Returns the number when it is no longer `old`.
  std::uint32_t await_other_than(std::uint32_t old);

 private:
  /// About 100 us: longer than the gap between two operations of a pass, so that a pass keeps its team awake (a wake-up costs some 40 us, and
  /// there are a hundred operations in a pass); a team that waits for another rank soon leaves the core to it.
  static constexpr int kSpins = 2000;

  std::atomic<std::uint32_t> number_{0};
  Message message_{};
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
};

template <typename Message>
std::uint32_t Announcement<Message>::await_other_than(std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const std::uint32_t now = number_.load(std::memory_order_acquire);
    if (now != old) return now;
    __builtin_ia32_pause();
  }
  sleepers_.fetch_add(1, std::memory_order_acq_rel);
  number_.wait(old, std::memory_order_acquire);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return number_.load(std::memory_order_acquire);
}

}  // namespace specdec
