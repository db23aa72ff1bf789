#pragma once

namespace specdec {

/// Exit code of a job that its user has ended, as shells count.
constexpr int exit_code_of_signal(int signal) { return 128 + signal; }

/// SIGTERM and SIGINT as something to poll instead of something that strikes. Blocks both for the calling thread and
/// all threads that it starts from then on, so it must come before MPI_Init; they stay blocked to the end of the
/// process, since mpirun sends SIGTERM to ranks that are already leaving.
class JobSignals {
 public:
  JobSignals();
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;
  JobSignals& operator=(const JobSignals&) = delete;

  /// Readable when a signal is there.
  int fd() const { return fd_; }
  /// The number of a signal that has come since the last call, or 0.
  int take();

 private:
  int fd_;
};

}  // namespace specdec
