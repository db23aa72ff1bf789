#pragma once

#include <exception>
#include <span>
#include <thread>

#include "parallel/progress.h"

namespace specdec {

/// The deadline of ranks that are threads of one process and wait over memory for each other, where nothing else could end such a wait: what the watchdog
/// (watchdog.h) is to ranks that are processes.
class ThreadWatch {
 public:
  /// Ends this process with one line and exit code 3 once a rank of `ranks` that others wait for has made no progress for `deadline` seconds, by the rules of
  /// find_culprit(). `ranks` outlives it.
  ThreadWatch(std::span<const Progress> ranks, double deadline);

  /// Ends this process with one line, since `rank` has thrown what the others would wait for for ever.
  [[noreturn]] static void fail(int rank, const std::exception_ptr& thrown);

 private:
  std::jthread thread_;
};

}  // namespace specdec
