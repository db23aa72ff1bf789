#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config.h"

namespace specdec {

/// Median seconds of passes on one rank and one thread, nothing else running: what a calibration needs beside real jobs.
struct PassTimes {
  std::vector<double> target;  ///< of 1, 2, ... rows, the draft's pass before each, as in a loop
  std::vector<double> draft;   ///< of 1, 2, ... rows, one after another: as far as its weights stay in a cache they do
  double layer = 0;            ///< of a layer that has next to no weights
};

/// As many rows as PassTimes has.
inline constexpr std::int64_t kTimedRows = 16;

/// Times passes of the config's two models after `context` tokens, with its types and instruction set. The config has a draft.
PassTimes time_passes(const RunConfig& config, std::int64_t context);

}  // namespace specdec
