#pragma once

namespace specdec {

/// How a rank waits for the others between polls of MPI: it polls for a while and then takes short naps.
///
/// Naps, because a wait must not poll for ever where ranks share cores: Open MPI calls sched_yield in a poll that finds nothing
/// (mpi_yield_when_idle), and since Linux 6.18 each yield forfeits the rest of the caller's slice, so a rank that polls for long is thought
/// to run up a debt of seconds and to be starved then by any process that computes (such stalls were seen, and went with the naps).
class Backoff {
 public:
  /// `polls` before the first nap: few where ranks share cores, many where they do not.
  explicit Backoff(int polls) : polls_(polls) {}
  /// To be called after each poll that found nothing.
  void pause();

  /// Polls before the first nap for `ranks` ranks on this host, by the cores that this process may run on.
  static int polls_for(int ranks);
  /// Naps of this thread end on time rather than up to 50 us late. Once a thread.
  static void sharpen_timer();

 private:
  int polls_;
};

}  // namespace specdec
