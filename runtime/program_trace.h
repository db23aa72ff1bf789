#pragma once

#include <optional>
#include <span>
#include <string>

#include "parallel/last_words.h"
#include "parallel/mpi_session.h"
#include "runtime/job_trace.h"

namespace specdec {

/// A program's --trace: the job's trace where one was asked for, also when the watchdog ends the job, and nothing at all where none was.
class ProgramTrace {
 public:
  /// `directory`: of the flag, empty without it; `label`: what the trace calls the program. `control`: all ranks; outlives the trace.
  /// Throws AgreedError (kBadInput) for a directory that cannot be written. Collective.
  ProgramTrace(MpiSession& session, const std::string& directory, const std::string& label, Communicator& control);

  /// Null without a trace.
  Tracer* tracer() { return trace_ ? &trace_->tracer() : nullptr; }
  /// JobTrace::finish, and a note on stderr when events found no room. Collective.
  void finish(const std::string& status, std::span<Communicator* const> groups);

 private:
  const std::string program_;
  std::optional<JobTrace> trace_;
  std::optional<LastWords> last_words_;
};

}  // namespace specdec
