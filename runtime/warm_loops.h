#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/transformer.h"
#include "runtime/config.h"

namespace specdec {

/// What loops take where everything stays in the caches, in seconds: beside their passes what belongs to the program and not to what its target drives out of them.
struct WarmLoops {
  double loop = 0;      ///< without drafting
  double pass = 0;      ///< of one row that drafts
  double drafted = 0;   ///< a drafted token more, beside it
  double accepted = 0;  ///< a drafted token that stands, over one that does not
  /// The pass that scores 2, 3, ... rows after a smaller model drafted all but one of them: as a target that stays in a cache has them, other work between.
  std::vector<double> scored;
};

/// Loops of `model` as its own target and draft on one rank, after `context` tokens, sampled as the config says: without drafting; with all drafted tokens standing, as they do
/// where both have the same distributions; and with none. Then with `smaller`, of the same vocabulary, as its draft, up to `most_rows` rows. Medians. All 0 and nothing where the context is too short, and
/// on a device, whose host waits for several things at once; no `scored` where the context has no room for so many rows. The model takes kWarmRows and `most_rows` rows.
/// `after_loop` is called after each, and is in none.
WarmLoops warm_loops(const RunConfig& config, Transformer& model, Transformer& smaller, std::int64_t most_rows,
                     std::int64_t context, const std::function<void()>& after_loop);

inline constexpr std::int64_t kWarmRows = 5;

}  // namespace specdec
