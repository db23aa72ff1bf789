#pragma once

#include <cstdint>

#include "runtime/cost_model.h"

namespace specdec {

/// Of loops and of tokens, in seconds, as RunMetrics has them.
struct Simulated {
  double seconds_per_token = 0;  ///< time of all loops over all tokens
  Percentiles token;
  Percentiles loop;
};

/// Plays `loops` loops of `job`, event after event: each collective begins when its last rank has come and takes the interconnect's time with its jitter; what a rank does
/// between two of them takes the cost model's time with the hardware's jitter and stragglers; each drafted position stands with probability alpha, and a rank that only drafts guesses with it. What a closed form cannot
/// say: how jitter adds up where every rank waits for the last one, twice a layer.
///
/// Ranks are independent, so of a collective only the last one to come matters: the largest of n equal variables is drawn as one, by the n-th root of a uniform, and
/// thousands of ranks cost what one does. Factors and delays are drawn apart, which is a little too slow where both are large.
Simulated simulate(const Hardware& hardware, const PredictedJob& job, double alpha, std::int64_t k, std::int64_t loops,
                   std::uint64_t seed);

/// z with P(Z <= z) = p of a standard normal Z, to about 1e-9; p in (0, 1) (Acklam 2003).
double normal_quantile(double p);

}  // namespace specdec
