#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/progress.h"
#include "parallel/tree.h"

namespace specdec {

/// How an MpiCommunicator sums.
enum class MpiReduction : std::uint8_t {
  kTree,     ///< transport `mpi`: the bits of tree_sum
  kLibrary,  ///< transport `mpi-fast`: MPI_Allreduce, in whatever order the library likes
};

/// Ranks as MPI processes.
///
/// The tree travels by recursive doubling while a payload is small (log2 n messages of the whole payload: latency
/// counts), and by recursive halving and doubling from `large_bytes` on when the number of ranks is a power of two (2
/// log2 n messages, 2 (n - 1) / n payloads: bandwidth counts). Both have the same bits. Waits poll non-blocking MPI and
/// back off (backoff.h); the job's watchdog ends a wait that is hopeless (watchdog.h).
class MpiCommunicator final : public Communicator {
 public:
  static constexpr std::size_t kLargeBytes = 256 * 1024;

  /// A private duplicate of the communicator that `handle` (MPI_Comm_c2f) names; collective over it. `progress` must
  /// outlive it.
  MpiCommunicator(int handle, MpiReduction reduction, Progress& progress, std::size_t large_bytes = kLargeBytes);
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view transport() const override { return reduction_ == MpiReduction::kTree ? "mpi" : "mpi-fast"; }

  void all_reduce(std::span<float> data, Stream stream) override;
  void all_reduce(std::span<BF16> data, Stream stream) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override;
  void broadcast(std::span<std::byte> data, int root, Stream stream) override;
  void barrier() override;
  void report_progress() override { progress_.tick(); }

 private:
  struct Handle;  // keeps mpi.h out of this header

  template <typename T>
  void reduce(std::span<T> data);
  template <typename T>
  void reduce_by_doubling(std::span<T> data);
  template <typename T>
  void reduce_by_halving(std::span<T> data);
  template <typename T>
  std::span<T> scratch(std::size_t size);

  std::unique_ptr<Handle> handle_;
  MpiReduction reduction_;
  Progress& progress_;
  std::size_t large_bytes_;
  int rank_ = 0;
  int size_ = 1;
  int polls_ = 0;  // polls before a wait sleeps
  std::vector<TreeStep> steps_;
  std::vector<std::byte> received_;
};

}  // namespace specdec
