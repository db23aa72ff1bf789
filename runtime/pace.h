#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace specdec {

/// A job of a study; `point` tells those of one point from others'.
struct PacedJob {
  std::size_t point = 0;
  double loop_ms = 0;  ///< its median loop
  std::string ended;   ///< as text sorts by time
};

/// How a machine's speed went up and down over a study: the study in `parts` of as many jobs each, one after another, and of each the median of what its jobs took over
/// quicker_half() of all of their points'. A host that others use too may be quick for minutes and then slow, and points of a calibration and those that are predicted need not meet both alike.
struct Pace {
  int parts = 0;
  double least = 0;
  double most = 0;
};

/// Nothing of less than two parts of kPacedJobs.
std::optional<Pace> pace_of(std::vector<PacedJob> jobs);

inline constexpr std::size_t kPacedJobs = 24;
inline constexpr std::size_t kMostPacedParts = 16;

}  // namespace specdec
