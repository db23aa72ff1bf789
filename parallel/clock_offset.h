#pragma once

#include <cstdint>
#include <functional>

#include "parallel/communicator.h"

namespace specdec {

/// How a rank's clock stood to rank 0's at one moment: rank 0's = this rank's + offset, give or take uncertainty.
struct ClockOffset {
  std::int64_t at = 0;           ///< nanoseconds by this rank's clock
  std::int64_t offset = 0;       ///< nanoseconds
  std::int64_t uncertainty = 0;  ///< nanoseconds, a bound and no estimate; 0 where both ranks read one clock

  friend bool operator==(const ClockOffset&, const ClockOffset&) = default;
};

/// Measures every rank's clock against rank 0's: of many round trips (a broadcast from rank 0, then a gather of what the
/// others' clocks showed in between) the shortest counts, and half of it is the bound. Ranks that share rank 0's kernel read the same CLOCK_MONOTONIC, so
/// for them there is nothing to measure; `now` given means clocks that are nobody's (in tests) and are measured. Collective.
ClockOffset measure_clock_offset(Communicator& group);
ClockOffset measure_clock_offset(Communicator& group, const std::function<std::int64_t()>& now);

/// From this rank's clock to rank 0's, along the line through readings at the start and the end of a job; `last` of the same moment as
/// `first`: the offset of `first`.
class CommonClock {
 public:
  explicit CommonClock(const ClockOffset& reading) : CommonClock(reading, reading) {}
  CommonClock(const ClockOffset& first, const ClockOffset& last) : first_(first), last_(last) {}
  std::int64_t operator()(std::int64_t own) const;

 private:
  ClockOffset first_;
  ClockOffset last_;
};

}  // namespace specdec
