#pragma once

#include <chrono>

namespace specdec {

/// Seconds on this process's monotonic clock.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace specdec
