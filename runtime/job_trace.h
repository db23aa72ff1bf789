#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "parallel/clock_offset.h"
#include "parallel/communicator.h"
#include "parallel/tracer.h"
#include "runtime/trace_json.h"

namespace specdec {

/// The trace of a job (docs/tracing.md): in one directory `rankN.json` of every rank, written by that rank, and `trace.json` with all
/// of them on rank 0's clock. Every rank makes one, before whatever it traces.
class JobTrace {
 public:
  /// Events that a rank has room for: some thousand rounds.
  static constexpr std::size_t kEvents = std::size_t{1} << 20;

  /// `control`: all ranks; outlives the trace. Writes the files of a trace without events, so that a directory that cannot be written
  /// throws AgreedError (kBadInput) before any work is done. `ranges`: as Tracer's. Collective.
  JobTrace(std::filesystem::path directory, std::string program, std::string host, Communicator& control,
           std::size_t capacity = kEvents, RangeSink* ranges = nullptr);
  /// As write_alone(), when nothing was written yet and an exception is on its way.
  ~JobTrace();
  JobTrace(const JobTrace&) = delete;
  JobTrace& operator=(const JobTrace&) = delete;

  Tracer& tracer() { return tracer_; }

  /// The end of a job whose ranks still talk: waits are found by comparing all ranks' arrivals, every rank writes its file, rank 0 also the
  /// merged one. `status`: rank 0's counts. `groups`: the communicators that number 0, 1, ... of the tracer's events stood for. Throws AgreedError (kBadInput)
  /// when a file cannot be written. Returns on rank 0 a line on events that found no room, else nothing. Collective.
  [[nodiscard]] std::string finish(std::string status, std::span<Communicator* const> groups);
  /// The end of a job that failed: this rank's file with what it has so far, without waits. On any thread; does nothing once a file is
  /// written, and nothing when it cannot be.
  void write_alone(const std::string& status) noexcept;

 private:
  std::filesystem::path own_file() const;
  TracedRank describe(const std::vector<TraceEvent>& events, const ClockOffset& last) const;
  /// All events so far, sorted, on the common clock and counted from the trace's begin.
  std::vector<TraceEvent> events_on(const CommonClock& clock) const;
  void write_own(const std::string& status, const TracedRank& rank, const std::vector<TraceEvent>& events) const;
  void write_merged(const std::string& status, const TracedRank& rank, const std::vector<TraceEvent>& events);

  const std::filesystem::path directory_;
  const std::string program_;
  const std::string host_;
  Communicator& control_;
  Tracer tracer_;
  ClockOffset first_;
  std::int64_t origin_ = 0;  ///< of all times, by rank 0's clock
  std::mutex mutex_;         ///< one writer of this rank's file
  bool written_ = false;     ///< guarded by mutex_
};

}  // namespace specdec
