#pragma once

#include <cstdint>
#include <span>

#include "runtime/metrics.h"

namespace specdec {

/// How long a token takes, in seconds, where a loop of K drafted tokens takes the same time whatever it yields: a loop's time is spread evenly over its
/// tokens, and a token weighs 1 (RunMetrics::token_time). A loop yields n tokens with probability alpha^(n-1) (1 - alpha) for n <= K and alpha^K for
/// n = K + 1 (Leviathan et al. 2023, section 3.1: positions are accepted independently, each with probability alpha).
struct TokenTimes {
  double mean = 0;      ///< loop_seconds / eq. 1
  double variance = 0;  ///< of a token's time
  Percentiles percentiles;
};

TokenTimes token_times(double alpha, std::int64_t k, double loop_seconds);

/// What a loop takes, and how often.
struct LoopCase {
  double seconds = 0;
  double share = 1;
};

/// The same where a loop is one of several cases, whatever it yields itself; their shares add up to 1.
TokenTimes token_times(double alpha, std::int64_t k, std::span<const LoopCase> cases);

}  // namespace specdec
