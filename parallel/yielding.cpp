#include "parallel/yielding.h"

#include <sched.h>

#include <chrono>

namespace specdec {
namespace {

// Longer than the other ranks of the job compute between two collectives of a small model, shorter than a scheduler's slice. A wrong
// guess costs a wake-up a wait.
constexpr std::chrono::microseconds kForeignWork{1000};
constexpr int kWaitsWithout = 64;

}  // namespace

bool Yielding::begin_wait() {
  if (waits_without_ == 0) {
    return true;
  }
  --waits_without_;
  return false;
}

bool Yielding::yield() {
  const auto gone = std::chrono::steady_clock::now();
  sched_yield();
  if (std::chrono::steady_clock::now() - gone <= kForeignWork) {
    return true;
  }
  waits_without_ = kWaitsWithout;
  return false;
}

}  // namespace specdec
