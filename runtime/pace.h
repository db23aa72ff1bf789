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

/// How a machine's speed went up and down over a study: the study in `parts` of as many jobs each, one after another, and of each the median of what its jobs took over what
/// their points take undisturbed (quicker_half() of all of a point's). A host that others use too may be quick for minutes and then slow; points of a calibration and those that are predicted do not meet
/// both alike, and no prediction is nearer than the one differs from the other.
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
