#pragma once

#include <optional>
#include <span>

#include "parallel/progress.h"

namespace specdec {

/// What the watchdog knows about one rank. Ages in seconds.
struct RankStatus {
  int rank = 0;
  bool lost = false;    ///< its socket has reached end of file
  double lost_age = 0;  ///< since then
  double silence = 0;   ///< since anything was heard of it
  double stall = 0;     ///< since its progress record last changed
  ProgressRecord progress;
};

enum class FailureCause : std::uint8_t {
  kDied,         ///< its process is gone
  kSilent,       ///< not even its watchdog answers: stopped, or its host is cut off
  kStalled,      ///< its watchdog answers, but its work does not go on and others wait for it
  kInterrupted,  ///< the user asked for the end, and the program did not end by itself
  kError,        ///< it threw an error that the others do not know of
};

struct Culprit {
  int rank = 0;
  FailureCause cause = FailureCause::kDied;
};

/// The rank that keeps the job from going on, if any: the first that died; else one that has been silent for longer
/// than `deadline` seconds; else, when somebody waits, the least advanced one, if its work has stood still for longer
/// than that. A rank that has said that it is leaving is never the culprit. Ties go to the lowest rank. A pure
/// function.
std::optional<Culprit> find_culprit(std::span<const RankStatus> ranks, double deadline);

}  // namespace specdec
