#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "parallel/communicator.h"

namespace specdec {

/// Ranks as threads of one process: the transport `threads`, which makes tests of several ranks cheap. Sums have the
/// bits of tree_sum. A rank that waits longer than the deadline, or for a rank that has left, gets
/// ErrorKind::kPeerFailed.
class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks, std::chrono::milliseconds deadline = std::chrono::seconds(60));
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int size() const;
  /// To be used by one thread; lives as long as the group.
  Communicator& communicator(int rank);
  /// `rank` will call nothing any more: whoever waits for it, now or later, gets kPeerFailed.
  void leave(int rank);

 private:
  class Rank;
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// Runs body(communicator) on `ranks` threads, joins them all and rethrows the exception that was thrown first. A rank
/// that throws or returns early does not leave the others waiting.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body,
               std::chrono::milliseconds deadline = std::chrono::seconds(60));

}  // namespace specdec
