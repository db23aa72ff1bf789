#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "parallel/last_words.h"
#include "parallel/mpi_session.h"
#include "runtime/job_trace.h"

namespace specdec {

/// A program's --trace: the job's trace where one was asked for, also when the watchdog ends the job, and nothing at all where none was. With
/// SPECDEC_NVTX=1 in the environment its spans are NVTX ranges too, with --trace or without.
class ProgramTrace {
 public:
  /// `directory`: of the flag, empty without it; `label`: what the trace calls the program. `control`: all ranks; outlives the trace.
  /// Throws AgreedError (kBadInput) for a directory that cannot be written, and where NVTX is asked for and not built in. Collective.
  ProgramTrace(MpiSession& session, const std::string& directory, const std::string& label, Communicator& control);

  /// Null without a trace or ranges.
  Tracer* tracer() { return trace_ ? &trace_->tracer() : ranges_only_ ? &*ranges_only_ : nullptr; }
  /// JobTrace::finish, and a note on stderr when events found no room. Collective.
  void finish(const std::string& status, std::span<Communicator* const> groups);

 private:
  const std::string program_;
  std::unique_ptr<RangeSink> ranges_;
  std::optional<Tracer> ranges_only_;  ///< remembers nothing
  std::optional<JobTrace> trace_;
  std::optional<LastWords> last_words_;
};

}  // namespace specdec
