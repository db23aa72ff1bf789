#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/thread_pool.h"
#include "backend/error.h"

namespace specdec {

/// Calls task(thread, unit) for unit in [0, units), in contiguous runs over at most `threads` threads of the pool. Which thread takes a unit
/// must not matter to its result.
template <typename Task>
void parallel_for(ThreadPool& pool, int threads, std::int64_t units, const Task& task) {
  if (threads <= 1 || units <= 1) {
    for (std::int64_t unit = 0; unit < units; ++unit) {
      task(0, unit);
    }
    return;
  }
  pool.run([=](int thread) {
    if (thread >= threads) {
      return;
    }
    for (std::int64_t unit = units * thread / threads; unit < units * (thread + 1) / threads; ++unit) {
      task(thread, unit);
    }
  });
}

/// Calls ready(thread) on each thread and then task(thread, begin, end, last) for runs of at most `chunk` units that together are [0, units). Each thread begins with
/// a part of its own, the same one in every call, front to back; `last` says that a run ends it. Then it helps those that are behind, so that a core that is taken
/// away for a while holds up the others for a chunk and not for its part. Which thread takes a unit must not matter to its result.
template <typename Ready, typename Task>
void share_out(ThreadPool& pool, int threads, std::int64_t units, std::int64_t chunk, const Ready& ready,
               const Task& task) {
  if (threads <= 1) {
    ready(0);
    task(0, std::int64_t{0}, units, true);
    return;
  }
  check(units < ThreadPool::Part::kMostUnits, "share_out: too many units");
  pool.run([=, parts = pool.parts(), round = pool.next_round()](int thread) {
    if (thread >= threads) {
      return;
    }
    ready(thread);
    for (int i = 0; i < threads; ++i) {
      const int owner = (thread + i) % threads;
      const std::int64_t end = units * (owner + 1) / threads;
      while (true) {
        const std::int64_t first = parts[owner].take(round, units * owner / threads, end, chunk);
        if (first == end) {
          break;
        }
        const std::int64_t behind = std::min(first + chunk, end);
        task(thread, first, behind, i == 0 && behind == end);
      }
    }
  });
}

}  // namespace specdec
