#pragma once

#include <cstdint>

#include "parallel/yielding.h"

namespace specdec {

/// Waits for a moment by host_nanoseconds(), some microseconds away, and is as little late as it can.
///
/// With a core for each rank it looks at the clock to the end, and yields between looks while there is time, for whoever was put on the same
/// core. Where ranks share cores it does nothing but yield, which brings all of them through sooner than a sleep each; but it
/// sleeps where a rank works meanwhile, or a foreign process did during the last waits: a yield then costs a slice of milliseconds (yielding.h).
class Alarm {
 public:
  enum class Meanwhile : std::uint8_t {
    kAllWait,    ///< the other ranks wait for the same moment
    kOthersWork  ///< some of them do not wait, perhaps on this core
  };

  /// For `ranks` ranks on `cores` cores.
  Alarm(int ranks, int cores);

  /// Returns at `until` or later, never earlier; returns when.
  std::int64_t wait(std::int64_t until, Meanwhile meanwhile);

 private:
  void yield_to(std::int64_t until);

  bool own_cores_;
  Yielding yielding_;
};

}  // namespace specdec
