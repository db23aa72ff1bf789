#pragma once

#include <chrono>
#include <cstdint>

namespace specdec {

/// Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a host.
inline std::int64_t host_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace specdec
