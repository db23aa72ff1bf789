#include "parallel/backoff.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <ctime>

namespace specdec {
namespace {

constexpr int kPollsOnSharedCores = 200;
constexpr int kPollsOnOwnCores = 500;  // some hundred microseconds
constexpr long kNapNanoseconds = 10'000;

}  // namespace

void Backoff::pause() {
  if (polls_ > 0) {
    --polls_;
    return;
  }
  const timespec nap{.tv_sec = 0, .tv_nsec = kNapNanoseconds};
  nanosleep(&nap, nullptr);
}

int Backoff::polls_for(int ranks) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
    return kPollsOnSharedCores;
  }
  // Whoever binds ranks gives each its own core while there are as many.
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const bool bound = CPU_COUNT(&cores) < online && CPU_COUNT(&cores) < ranks;
  return ranks <= (bound ? online : CPU_COUNT(&cores)) ? kPollsOnOwnCores : kPollsOnSharedCores;
}

void Backoff::sharpen_timer() {
  constexpr unsigned long kSlackNanoseconds = 1;
  prctl(PR_SET_TIMERSLACK, kSlackNanoseconds, 0, 0, 0);
}

}  // namespace specdec
