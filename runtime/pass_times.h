#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/config.h"

namespace specdec {

/// Median seconds of passes on one thread, nothing else running: what a calibration needs beside real jobs.
struct PassTimes {
  /// By the number of ranks that the target is cut over: rank 0's part of passes over 1, 2, ... rows without their collectives, the draft's pass before each, as in a loop.
  std::map<int, std::vector<double>> target;
  std::vector<double> draft;  ///< of 1, 2, ... rows, one after another: as far as its weights stay in a cache they do
  double layer = 0;           ///< of a layer that has next to no weights
};

/// As many rows as PassTimes has.
inline constexpr std::int64_t kTimedRows = 16;

/// Times passes of the config's two models halfway through what it generates, with its types and instruction set, the target cut over 1 and over each of `rank_counts` ranks. The
/// config has a draft.
PassTimes time_passes(const RunConfig& config, std::span<const std::int64_t> rank_counts);

}  // namespace specdec
