#pragma once

#include <cstdint>

#include "parallel/doorbell.h"

namespace specdec {

/// How one rank waits for the others of its host: it looks for a while, then gives its core away and looks again, then
/// sleeps.
///
/// Giving the core away with sched_yield is the fastest way on where ranks share cores, and the worst where a foreign
/// process computes on one of them: each yield hands that process a slice of milliseconds (and since Linux 6.18 forfeits
/// the rest of the caller's own). So a yield that was away for too long stops all yielding for some waits: the rank
/// sleeps instead, and the ring that wakes it takes the core back at once.
class Waiter {
 public:
  enum class Expected : std::uint8_t {
    kShort,  ///< the others are about to come: a collective inside a pass
    kLong,   ///< rank 0 drafts or decides meanwhile, perhaps on this core
  };

  /// For `ranks` ranks on `cores` cores.
  Waiter(int ranks, int cores);

  /// Returns once `ready()` holds; whoever makes it hold rings `bell`.
  template <typename Ready>
  void wait(Doorbell& bell, Expected expected, Ready&& ready) {
    for (int i = 0; i < polls_; ++i) {
      if (ready()) {
        return;
      }
      relax();
    }
    int yields = expected == Expected::kLong ? long_yields_ : yields_;
    if (sober_waits_ > 0) {
      --sober_waits_;
      yields = 0;
    }
    for (; yields > 0 && sober_waits_ == 0; --yields) {
      if (ready()) {
        return;
      }
      yield();
    }
    bell.sleep_until(ready);
  }

 private:
  static void relax();
  void yield();

  int polls_;
  int yields_;
  int long_yields_;
  int sober_waits_ = 0;  // to come, without a yield
};

}  // namespace specdec
