#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace specdec {

/// Where ranks of one host sleep until what they wait for has been written; lies in shared memory, zeroed at first.
///
/// No wake-up is lost: a sleeper counts itself in and looks once more, a writer writes and then looks at the count, all
/// with sequential consistency. A ring with nobody asleep costs one load.
///
/// A ring wakes one sleeper, and each that has woken wakes two more: to wake is a system call of microseconds each, and whoever rings, rank 0
/// with a round's message say, has work to do. So all who sleep at a bell at one time must wait for the same ring.
class alignas(128) Doorbell {
 public:
  /// To be called after the seq_cst store that makes a sleeper's `ready` true.
  void ring();

  /// Returns once `ready()` holds; it must load with seq_cst what the writer stores before it rings. Looks again every `at_most`, since a
  /// writer may have been stopped between its store and its ring.
  template <typename Ready>
  void sleep_until(Ready&& ready, std::chrono::nanoseconds at_most = std::chrono::milliseconds(50)) {
    while (!ready()) {
      const std::uint32_t heard = rings_.load(std::memory_order_seq_cst);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      if (!ready()) {
        sleep(heard, at_most);
      }
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      if (ready()) {
        pass_on();
        return;
      }
    }
  }

 private:
  void pass_on();
  void wake(int sleepers);
  /// Until a ring after the `heard`-th, or for `at_most`.
  void sleep(std::uint32_t heard, std::chrono::nanoseconds at_most);

  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace specdec
