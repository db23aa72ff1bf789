#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/thread_pool.h"

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
  pool.run([&](int thread) {
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
  ThreadPool::Part* const parts = pool.parts();
  for (int thread = 0; thread < threads; ++thread) {
    parts[thread].next.store(units * thread / threads, std::memory_order_relaxed);
    parts[thread].end = units * (thread + 1) / threads;
  }
  pool.run([&](int thread) {
    if (thread >= threads) {
      return;
    }
    ready(thread);
    for (int i = 0; i < threads; ++i) {
      ThreadPool::Part& part = parts[(thread + i) % threads];
      while (true) {
        const std::int64_t begin = part.next.fetch_add(chunk, std::memory_order_relaxed);
        if (begin >= part.end) {
          break;
        }
        const std::int64_t end = std::min(begin + chunk, part.end);
        task(thread, begin, end, i == 0 && end == part.end);
      }
    }
  });
}

}  // namespace specdec
