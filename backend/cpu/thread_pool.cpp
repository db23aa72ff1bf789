#include "backend/cpu/thread_pool.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "backend/error.h"

namespace specdec {
namespace {

constexpr std::size_t kLine = 64;

/// Where it is not allowed the scheduler goes on by itself.
void bind(std::thread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

std::vector<int> cores_of_team(std::vector<int> own, int threads, int callers) {
  if (own.size() != static_cast<std::size_t>(threads)) {
    return {};
  }
  const auto taken = std::ranges::find(own, callers);
  if (taken != own.end()) {
    std::swap(*taken, own.front());
  }
  return own;
}

void flush_subnormals_to_zero() {
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
}

ThreadPool::ThreadPool(int threads, Pin pin) {
  check(threads >= 1, "a thread pool needs at least one thread");
  parts_ = std::make_unique<Part[]>(static_cast<std::size_t>(threads));
  done_ = std::make_unique<Announcement<Nothing>[]>(static_cast<std::size_t>(threads - 1));
  if (pin == Pin::kToOwnCores) {
    cores_ = cores_of_team(own_cores(), threads, sched_getcpu());
  }
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
      if (!cores_.empty()) {
        bind(workers_.back(), cores_[static_cast<std::size_t>(thread)]);
      }
    }
  } catch (const std::system_error& error) {
    const int started = size();
    stop();
    throw_bad_input(fmt::format("threads: found {}, expected no more than this machine can start: {} ran ({})", threads,
                                started, error.what()));
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  if (workers_.empty()) {
    return;
  }
  start_.announce(start_.number() + 1, {});
  start_.settle();
  for (std::thread& worker : workers_) {
    worker.join();
  }
  workers_.clear();
}

void ThreadPool::make_room(int core) {
  const auto found = std::ranges::find(cores_, core);
  if (found == cores_.begin() || found == cores_.end()) {
    return;
  }
  std::swap(*found, cores_.front());
  bind(workers_[static_cast<std::size_t>(found - cores_.begin() - 1)], *found);
}

void ThreadPool::fork_join(const Round& round) {
  if (!cores_.empty()) {
    make_room(sched_getcpu());
  }
  ++rounds_;
  const std::uint32_t before = start_.number();
  _mm_sfence();  // as in work()
  start_.announce(before + 1, round);
  round.call(round.context, 0);
  start_.settle();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    done_[i].await_other_than(before);
  }
}

void ThreadPool::work(int thread) {
  flush_subnormals_to_zero();
  Announcement<Nothing>& done = done_[static_cast<std::size_t>(thread - 1)];
  for (std::uint32_t seen = 0;;) {
    seen = start_.await_other_than(seen);
    const Round& round = start_.message();
    if (round.call == nullptr) {
      return;
    }
    // It begins anywhere in its first line.
    for (std::size_t at = 0; at < round.bytes + kLine - 1; at += kLine) {
      _mm_prefetch(static_cast<const char*>(round.context) + at, _MM_HINT_T0);
    }
    round.call(round.context, thread);
    _mm_sfence();  // what was stored past the caches is there before anyone is told
    done.announce(seen, {});
    done.settle();
  }
}

std::int64_t ThreadPool::Part::take(std::uint64_t round, std::int64_t begin, std::int64_t end, std::int64_t most) {
  constexpr auto kUnits = static_cast<std::uint64_t>(kMostUnits);
  const std::uint64_t of_round = round * kUnits;
  std::uint64_t next = next_.load(std::memory_order_relaxed);
  while (true) {
    const bool begun = next - next % kUnits == of_round;
    const std::int64_t unit = begun ? static_cast<std::int64_t>(next % kUnits) : begin;
    if (unit >= end) return end;
    const auto after = static_cast<std::uint64_t>(std::min(unit + most, end));
    if (next_.compare_exchange_weak(next, of_round + after, std::memory_order_relaxed)) return unit;
  }
}

}  // namespace specdec
