#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/error.h"
#include "parallel/culprit.h"
#include "parallel/job_signals.h"
#include "parallel/peer.h"
#include "parallel/progress.h"

namespace specdec {

/// Why a job ends before its time, as rank 0 sees it.
struct Failure {
  FailureCause cause = FailureCause::kError;
  int rank = 0;             ///< the culprit
  std::string host;         ///< its host
  ProgressRecord progress;  ///< its last known progress
  int exit_code = 3;
  std::string message;  ///< the line on stderr, without the program's name and without a line end
};

/// Ends a job whose ranks cannot go on. One thread a rank, which reads the signals, keeps a socket to rank 0 (on rank
/// 0: to every worker) and sends a heartbeat with the rank's progress every 100 ms (docs/protocol.md, "How a job
/// ends").
class Watchdog {
 public:
  /// `peers`: on rank 0 one per worker, in order of rank; on a worker rank 0 alone. `hosts` [ranks].
  Watchdog(JobSignals& signals, Progress& progress, std::string program, int rank, std::vector<std::string> hosts,
           std::vector<Peer> peers);
  /// Tells the peers that this rank leaves.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Seconds without progress of an awaited rank, or without a sign of life of any, after which the job ends.
  void set_deadline(double seconds) { deadline_.store(seconds, std::memory_order_relaxed); }
  /// Called on the watchdog's thread before the process ends, on rank 0 after the line on stderr, on the others when rank 0 has ended the
  /// job: the last chance to write results. All that are registered together have about half a second; the newest comes first. Returns a
  /// number for take_back(). LastWords (last_words.h) does both.
  int on_failure(std::function<void(const Failure&)> callback);
  /// When this returns, the callback is not running and will not.
  void take_back(int number);
  /// The number of the signal by which the user asked for the end (SIGINT, SIGTERM), else 0. On rank 0; to be read once
  /// a round. From then on there are 700 ms until the job is ended as by a failure.
  int interrupted() const { return interrupted_.load(std::memory_order_relaxed); }
  /// Ends the job because this rank has thrown. Does not return.
  [[noreturn]] void fail(ErrorKind kind, const std::string& message);
  /// Ends the job because this rank does not hold what rank 0 holds; `message` says in what they differ. Rank 0 hears all ranks before it
  /// says who is the odd one.
  [[noreturn]] void disagree(const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;

  /// A rank that this one watches; on rank 0 every rank, itself included, on a worker rank 0.
  struct Watched {
    int rank = 0;
    std::optional<Peer> peer;  // none for this rank itself
    ProgressRecord progress;
    Clock::time_point heard;
    Clock::time_point advanced;
    std::optional<Clock::time_point> lost;
    bool disagrees = false;
  };
  struct PendingError {
    Failure failure;
    Clock::time_point since;
  };

  bool leader() const { return rank_ == 0; }
  void run(const std::stop_token& stop);
  void wait_for_events();
  void skip_suspension();
  void read_signals();
  void read_peers();
  [[noreturn]] void raise_error(FailureCause cause, ErrorKind kind, const std::string& message);
  void take_message(Watched& from, const Message& message);
  void take_error(Watched& from, const Message& message);
  void update(Watched& watched, const ProgressRecord& progress);
  void note_signal(int signal);
  void take_own_error();
  void beat();
  void judge();
  void judge_error(const PendingError& error);
  void judge_signal();
  bool all_have_compared(const Failure& difference) const;
  Failure describe_disagreement(Failure difference) const;
  std::optional<Culprit> culprit(double deadline) const;
  Failure describe(const Culprit& culprit) const;
  void tell(MessageKind kind, int exit_code, const std::string& text);
  void report(const Failure& failure);
  [[noreturn]] void obey(int exit_code);
  [[noreturn]] void end(const Failure& failure);

  JobSignals& signals_;
  Progress& progress_;
  const std::string program_;
  const int rank_;
  const std::vector<std::string> hosts_;
  const int wake_;  // eventfd: something for the thread to look at

  std::atomic<double> deadline_{30.0};
  std::atomic<int> interrupted_{0};
  std::mutex mutex_;
  std::map<int, std::function<void(const Failure&)>> on_failure_;  // guarded by mutex_
  int registered_ = 0;                                             // guarded by mutex_
  std::optional<Failure> own_error_;                               // guarded by mutex_

  // Of the thread alone.
  std::vector<Watched> watched_;
  Clock::time_point now_;
  Clock::time_point next_beat_;
  int signal_ = 0;
  Clock::time_point signal_at_;
  std::optional<PendingError> error_;
  std::jthread thread_;
};

}  // namespace specdec
