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

/// About 100 us: longer than the gap between two operations of a pass, so that a pass keeps its team awake (a wake-up costs some 40 us, and
/// there are a hundred operations in a pass); a team that waits for another rank soon leaves the core to it.
constexpr int kSpins = 2000;

/// Returns when `word` is no longer `old`.
std::uint32_t await_change(const std::atomic<std::uint32_t>& word, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const std::uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) {
      return now;
    }
    _mm_pause();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

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
  call_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
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

void ThreadPool::fork_join(Call call, void* context) {
  if (!cores_.empty()) {
    make_room(sched_getcpu());
  }
  call_ = call;
  context_ = context;
  pending_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  _mm_sfence();  // as in work()
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  call(context, 0);
  for (std::uint32_t left = pending_.load(std::memory_order_acquire); left != 0;) {
    left = await_change(pending_, left);
  }
}

void ThreadPool::work(int thread) {
  flush_subnormals_to_zero();
  for (std::uint32_t seen = 0;;) {
    seen = await_change(round_, seen);
    if (call_ == nullptr) {
      return;
    }
    call_(context_, thread);
    _mm_sfence();  // what was stored past the caches is there before anyone is told
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      pending_.notify_one();
    }
  }
}

}  // namespace specdec
