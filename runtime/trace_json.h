#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/clock_offset.h"
#include "parallel/tracer.h"

/// Events as text in the Chrome trace format (docs/tracing.md), object form: what Perfetto and chrome://tracing open.
namespace specdec {

/// One rank's part of a trace, apart from its events; plain bytes, so that it can travel.
struct TracedRank {
  std::int32_t rank = 0;
  std::array<char, 256> host{};  ///< ends with a zero
  std::int64_t events = 0;
  std::int64_t dropped = 0;  ///< for want of room
  ClockOffset clock_at_start;
  ClockOffset clock_at_end;  ///< as at the start where the job came to no end
};

/// Everything up to the first event, the names of processes and threads included. `size`: ranks of the job; `status`: "running", "ok",
/// or why the job ended before its time; `ranks`: those whose events follow.
std::string trace_head(const std::string& program, int size, const std::string& status,
                       std::span<const TracedRank> ranks);

/// ",\n" and the event of rank `rank`, its times in nanoseconds since the trace began.
void append_event(std::string& text, const TraceEvent& event, int rank);

/// What stands after the last event.
std::string trace_tail();

/// Events in the order in which viewers want them: by their begin, and what contains others before them.
void sort_events(std::vector<TraceEvent>& events);

}  // namespace specdec
