#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/error.h"
#include "parallel/communicator.h"
#include "parallel/host_map.h"
#include "parallel/job_signals.h"
#include "parallel/progress.h"
#include "parallel/start_guard.h"
#include "parallel/transports.h"
#include "parallel/watchdog.h"

namespace specdec {

/// MPI from start to end: the one place of MPI_Init_thread and MPI_Finalize. Owned by main, first in, last out;
/// everything below gets communicators. Works without mpirun too, as a job of one rank.
class MpiSession {
 public:
  /// `program` stands before every message on stderr. MPI reads its own arguments from argc, argv. A start that takes longer than
  /// StartGuard::limit() ends the process.
  MpiSession(int& argc, char**& argv, std::string program);
  /// Starts the watchdog, before anything else is done with the session. With several hosts its sockets are bound to the interface that
  /// SPECDEC_INTERFACE names, or else Open MPI's btl_tcp_if_include (docs/several-hosts.md); throws AgreedError (kBadInput) for one that
  /// a host does not have. Then ranks that share the cores of a host are bound to one each (host_cores.h). Collective.
  void watch();
  /// Waits for the other ranks (MPI_Finalize).
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& host() const { return hosts_[rank_]; }
  /// Of every rank, in order of rank; the same list everywhere.
  const std::vector<std::string>& hosts() const { return hosts_; }
  LocalRank local_rank() const { return specdec::local_rank(hosts_, rank_); }
  /// Of its host, to itself: own_share_of_cores() before ranks were bound. Known once watch() has returned.
  int cores() const { return cores_; }
  const std::string& program() const { return program_; }
  Progress& progress() { return progress_; }

  /// All ranks, over `transport` (transports.h), those of one host next to each other and rank 0 first. Throws as
  /// make_communicator() does. Which of its host's ranks this one is, the session adds to `options`. Collective.
  std::unique_ptr<Communicator> world(std::string_view transport, const TransportOptions& options = {});
  /// As world(), for the ranks that give the same `color` >= 0; null for color < 0.
  /// Collective over all ranks.
  std::unique_ptr<Communicator> split(std::string_view transport, int color, const TransportOptions& options = {});

  /// MPI_COMM_WORLD as MPI_Comm_c2f gives it, for an MpiCommunicator made by hand.
  int world_handle() const;

  /// Deadlines, failures and interruption of the job.
  Watchdog& watchdog() { return *watchdog_; }
  bool watched() const { return watchdog_ != nullptr; }

 private:
  void pin();

  JobSignals signals_;               // first: before MPI starts its threads
  std::optional<StartGuard> guard_;  // until the watchdog takes over
  Progress progress_;
  std::string program_;
  std::vector<std::string> hosts_;
  int rank_ = 0;
  int size_ = 1;
  int cores_ = 1;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace specdec
