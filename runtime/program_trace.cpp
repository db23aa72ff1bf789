#include "runtime/program_trace.h"

#include <fmt/format.h>

#include <cstdio>

namespace specdec {

ProgramTrace::ProgramTrace(MpiSession& session, const std::string& directory, const std::string& label,
                           Communicator& control)
    : program_(session.program()) {
  if (!directory.empty()) {
    trace_.emplace(directory, label, session.host(), control);
    last_words_.emplace(session.watchdog(), [this](const Failure& failure) { trace_->write_alone(failure.message); });
  }
}

void ProgramTrace::finish(const std::string& status, std::span<Communicator* const> groups) {
  if (!trace_) {
    return;
  }
  const std::string note = trace_->finish(status, groups);
  if (!note.empty()) {
    fmt::print(stderr, "{}: note: {}\n", program_, note);
  }
}

}  // namespace specdec
