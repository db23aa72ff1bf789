#pragma once

#include <cstdint>

#include "models/transformer.h"
#include "runtime/config.h"

namespace specdec {

/// What a loop takes beside its passes where everything stays in the caches, in seconds: what belongs to the program and not to what its target drives out of them.
struct WarmLoops {
  double loop = 0;      ///< without drafting
  double drafted = 0;   ///< a drafted token more
  double accepted = 0;  ///< a drafted token that stands, over one that does not
};

/// Loops of `model` as its own target and draft on one rank, after `context` tokens, sampled as the config says: without drafting; with all drafted tokens standing, as they do
/// where both have the same distributions; and with none. Medians. All 0 where the context is too short, and on a device, whose host waits for several things at once.
/// The model takes kWarmRows rows.
WarmLoops warm_loops(const RunConfig& config, Transformer& model, std::int64_t context);

inline constexpr std::int64_t kWarmRows = 5;

}  // namespace specdec
