#include "parallel/alarm.h"

#include <cerrno>
#include <ctime>

#include "parallel/backoff.h"
#include "parallel/host_clock.h"

namespace specdec {
namespace {

constexpr std::int64_t kNanosecondsASecond = 1'000'000'000;

// A wait that is longer begins with a sleep, which ends so much before the moment: more than a wake-up takes on a busy machine. A rank with a core of its own
// takes nothing from anyone while it looks, and a virtual core that slept is not always there again in time, so it sleeps only before a moment that is far.
constexpr std::int64_t kLong = 1'000'000;
constexpr std::int64_t kLongOnOwnCore = 50'000'000;
constexpr std::int64_t kWakeUp = 200'000;

// A yield takes 0.3 us when nobody else wants the core; the last looks come without.
constexpr std::int64_t kLastLooks = 3'000;

void sleep_until(std::int64_t moment) {
  const timespec time{.tv_sec = moment / kNanosecondsASecond, .tv_nsec = moment % kNanosecondsASecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

}  // namespace

Alarm::Alarm(int ranks, int cores) : own_cores_(ranks <= cores) { Backoff::sharpen_timer(); }

std::int64_t Alarm::wait(std::int64_t until, Meanwhile meanwhile) {
  if (until - host_nanoseconds() > (own_cores_ ? kLongOnOwnCore : kLong)) {
    sleep_until(until - kWakeUp);
  }
  const bool may_yield = yielding_.begin_wait();
  if (own_cores_) {
    if (may_yield) {
      yield_to(until - kLastLooks);
    }
  } else if (!may_yield || meanwhile == Meanwhile::kOthersWork) {
    sleep_until(until);
  } else {
    yield_to(until);
  }
  std::int64_t time = host_nanoseconds();
  while (time < until) {
    time = host_nanoseconds();
  }
  return time;
}

void Alarm::yield_to(std::int64_t until) {
  while (yielding_.now() < until && yielding_.yield()) {
  }
}

}  // namespace specdec
