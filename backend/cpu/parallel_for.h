#pragma once

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

}  // namespace specdec
