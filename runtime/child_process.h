#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "parallel/job_signals.h"

namespace specdec {

/// How a program that was started ended.
struct ChildResult {
  int code = 0;            ///< exit status, or 128 + signal
  bool timed_out = false;  ///< it was ended for running too long
  int interrupted = 0;     ///< the signal that this program got meanwhile, at which the child was ended; 0: none
  double seconds = 0;      ///< that it ran
  std::string last_line;   ///< of what it wrote to standard error, without empty lines
};

/// Runs `words`, the program looked up in PATH, in a process group of its own, with no signal blocked, its output to `log`. After `timeout` seconds, or when one of
/// `signals` comes, the group gets SIGTERM, and SIGKILL ten seconds later; it also ends when this program dies. Throws kBadInput where the program cannot be started.
ChildResult run_child(JobSignals& signals, const std::vector<std::string>& words, double timeout,
                      const std::filesystem::path& log);

}  // namespace specdec
