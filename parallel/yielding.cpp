#include "parallel/yielding.h"

#include <sched.h>

#include "parallel/host_clock.h"

namespace specdec {
namespace {

// Longer than the other ranks of the job compute between two collectives of a small model, shorter than a scheduler's slice. A wrong
// guess costs a wake-up a wait.
constexpr std::int64_t kForeignWork = 1'000'000;  // nanoseconds
constexpr int kWaitsWithout = 64;

}  // namespace

bool Yielding::begin_wait() {
  now_ = host_nanoseconds();
  if (waits_without_ == 0) {
    return true;
  }
  --waits_without_;
  return false;
}

bool Yielding::yield() {
  const std::int64_t gone = now_;
  sched_yield();
  now_ = host_nanoseconds();
  if (now_ - gone <= kForeignWork) {
    return true;
  }
  waits_without_ = kWaitsWithout;
  return false;
}

}  // namespace specdec
