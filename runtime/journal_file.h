#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <thread>

#include "runtime/journal.h"

namespace specdec {

/// Keeps a job's JSON report on disk while the job runs: a thread writes it whenever the journal has grown, at most once an interval, so
/// that even a rank 0 that is killed leaves what it had accepted shortly before. The decoding thread never waits for the disk.
class JournalFile {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};
  /// A long report is written less often: pauses are so many times as long as the write before, so that the work of a job of any length
  /// costs a twentieth of one core.
  static constexpr int kPauseOverWrite = 20;

  /// Writes nothing yet.
  JournalFile(const RunJournal& journal, std::filesystem::path path);
  /// Writes at once, so that a path that cannot be written throws (kBadInput) before any work is done, and from now on. By then whoever
  /// ends the job must be able to write too: what is on disk says that the job runs.
  void start();
  /// Stops the thread; write() before it for the last state.
  ~JournalFile() = default;
  /// Writes now. Throws kBadInput when the path cannot be written any more.
  void write();

 private:
  void keep_up(const std::stop_token& stop);

  const RunJournal& journal_;
  const std::filesystem::path path_;
  std::mutex mutex_;  // one writer at a time
  std::condition_variable_any wake_;
  std::uint64_t written_ = 0;  // guarded by mutex_: the journal's revision on disk
  std::jthread thread_;
};

}  // namespace specdec
