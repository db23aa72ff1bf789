#pragma once

#include <optional>
#include <span>
#include <vector>

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
  kDisagrees,    ///< it does not hold what the others hold
};

struct Culprit {
  int rank = 0;
  FailureCause cause = FailureCause::kDied;
};

/// The rank that keeps the job from going on, if any: the first that died; else one that has been silent for longer
/// than `deadline` seconds; else, when somebody waits, the least advanced one, if its work has stood still for longer
/// than that, or, where that one waits itself, one that has not answered for half of it. A rank that has said that it is
/// leaving is never the culprit, and one that waits for work only when it dies or falls silent. Ties go to the lowest
/// rank. A pure function.
std::optional<Culprit> find_culprit(std::span<const RankStatus> ranks, double deadline);

/// Of `ranks` ranks those in `disagreeing`, not empty, have found that what rank 0 sent is not what they hold. Who is to blame: they, unless
/// rank 0 disagrees with itself or with all of several others.
std::vector<int> odd_ranks(std::span<const int> disagreeing, int ranks);

}  // namespace specdec
