#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/dtype.h"

namespace specdec {

/// A fixed group of ranks that act together. Every rank of the group calls the same operations in the same order with
/// the same sizes; what one rank alone passes shows at the operation.
///
/// Payloads lie in host memory, and a call is done when it returns. Where on_device() holds, all_reduce alone is otherwise: its payload lies on
/// the rank's GPU, it is enqueued on `stream` and the host waits for nothing, so that a CUDA graph can capture it once that size has run outside of
/// one; the small messages of decisions and control go on from host memory, ranks in order, whatever the stream holds.
///
/// A wait that outlives the job's deadline, counted from the awaited rank's last progress, ends the job with ErrorKind::kPeerFailed
/// (docs/protocol.md). With one rank every operation is free: the shortcut is here and never at a call site.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "self", "threads", "shm", "hier", "mpi", "mpi-fast", "nccl", "nccl-fast", "ipc": as written in a config and printed in reports.
  virtual std::string_view transport() const = 0;
  /// Whether all_reduce takes memory of this rank's GPU, and a stream of it.
  virtual bool on_device() const { return false; }

  /// data = sum over ranks, element by element, in one fixed binary tree, nearest neighbours first: with 4 ranks
  /// (d0 + d1) + (d2 + d3). Every rank gets the same bits. (`mpi-fast` and `nccl-fast` alone use their
  /// libraries' own orders.)
  virtual void all_reduce(std::span<float> data, Stream stream) = 0;
  /// The same with half the bytes: every addition of the tree is done in fp32 and rounded to bf16 (to nearest even).
  virtual void all_reduce(std::span<BF16> data, Stream stream) = 0;
  /// all [size() * mine.size()] = every rank's `mine`, in rank order, on every rank. `mine` may be its own place in `all`.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) = 0;
  /// As all_gather, on rank `root` alone; `all` is ignored elsewhere and may be empty there.
  virtual void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) = 0;
  /// data of rank `root` on every rank.
  virtual void broadcast(std::span<std::byte> data, int root, Stream stream) = 0;
  virtual void barrier() = 0;

  /// Tells the watchdog that this rank works, for computations of many seconds without a collective (packing weights).
  /// Free.
  virtual void report_progress() {}
  /// To be called again and again while the host waits for a device that may wait for other ranks (device_wait.h). Throws kPeerFailed when what
  /// was enqueued can no longer be done. Free.
  virtual void poll() {}
};

}  // namespace specdec
