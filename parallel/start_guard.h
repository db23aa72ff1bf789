#pragma once

#include <chrono>
#include <string>
#include <thread>

namespace specdec {

/// The deadline of what comes before the watchdogs can talk: MPI's own start, in which a rank that is stopped or a host that is cut off
/// would keep all others for ever.
class StartGuard {
 public:
  /// SPECDEC_START_DEADLINE in seconds, 60 without it. Throws kBadInput for what is no number above 0.
  static std::chrono::milliseconds limit();

  /// Ends this process with one line and exit code 3 unless it is destroyed within `limit`. Lower ranks do so earlier, so that one speaks
  /// for all: mpirun ends the others then. Signals must be blocked already (JobSignals).
  StartGuard(std::string program, std::chrono::milliseconds limit);

 private:
  std::jthread thread_;
};

}  // namespace specdec
