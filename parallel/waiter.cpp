#include "parallel/waiter.h"

#include <sched.h>

#include <chrono>

namespace specdec {
namespace {

struct Patience {
  int polls;
  int yields;
  int long_yields;
};
// A yield with nobody else on the core is a slow poll (0.3 us), so ranks with a core each look for half a millisecond, or for a few where
// rank 0 drafts meanwhile (to wake an idle core costs 20 us), before they
// sleep, and still let in whoever was put on the same core.
constexpr Patience kOwnCores{.polls = 30, .yields = 2000, .long_yields = 10'000};
constexpr Patience kSharedCores{.polls = 2, .yields = 50, .long_yields = 0};

// Longer than the other ranks of the job compute between two collectives of a small model, shorter than a scheduler's slice. A wrong
// guess costs a wake-up a wait.
constexpr std::chrono::microseconds kForeignWork{1000};
constexpr int kSoberWaits = 64;

}  // namespace

Waiter::Waiter(int ranks, int cores) {
  const Patience& patience = ranks <= cores ? kOwnCores : kSharedCores;
  polls_ = patience.polls;
  yields_ = patience.yields;
  long_yields_ = patience.long_yields;
}

void Waiter::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void Waiter::yield() {
  const auto gone = std::chrono::steady_clock::now();
  sched_yield();
  if (std::chrono::steady_clock::now() - gone > kForeignWork) {
    sober_waits_ = kSoberWaits;
  }
}

}  // namespace specdec
