#pragma once

#include <cstdint>

namespace specdec {

/// Giving the core away to other ranks, for one thread that waits again and again.
///
/// sched_yield is the fastest way on where ranks share cores, and the worst where a foreign process computes on one of them: each yield
/// hands that process a slice of milliseconds (and since Linux 6.18 forfeits the rest of the caller's own). So a yield that was away for
/// too long forbids all yields for some waits, which sleep instead: who is woken takes the core back at once.
class Yielding {
 public:
  /// A wait begins. False: it has to do without yields.
  bool begin_wait();
  /// Gives the core away. False: it was away for so long that this wait has to go on without.
  bool yield();
  /// By host_nanoseconds(), when the wait began or the last yield came back, which is now but for a look or two.
  std::int64_t now() const { return now_; }

 private:
  int waits_without_ = 0;  // to come
  std::int64_t now_ = 0;
};

}  // namespace specdec
