#include "runtime/program_trace.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "backend/error.h"
#include "parallel/agree.h"
#include "parallel/nvtx_ranges.h"

namespace specdec {

namespace {

/// Those of a profiler, where the environment asks for them.
std::unique_ptr<RangeSink> wanted_ranges() {
  constexpr const char* kVariable = "SPECDEC_NVTX";
  const char* const text = std::getenv(kVariable);
  const std::string_view wanted = text == nullptr ? "" : text;
  if (wanted == "1") {
    return make_nvtx_ranges();
  }
  if (!wanted.empty() && wanted != "0") {
    throw_bad_input(fmt::format("{}: found '{}', expected 0 or 1", kVariable, wanted));
  }
  return nullptr;
}

}  // namespace

ProgramTrace::ProgramTrace(MpiSession& session, const std::string& directory, const std::string& label,
                           Communicator& control)
    : program_(session.program()) {
  agree(control, [&] { ranges_ = wanted_ranges(); });
  if (ranges_) {
    ranges_only_.emplace(0, ranges_.get());
  }
  if (!directory.empty()) {
    trace_.emplace(directory, label, session.host(), control, JobTrace::kEvents, ranges_.get());
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
