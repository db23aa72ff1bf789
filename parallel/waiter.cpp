#include "parallel/waiter.h"

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

}  // namespace specdec
