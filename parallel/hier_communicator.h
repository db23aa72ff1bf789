#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// Ranks of several hosts: the transport `hier`. Every run of `block` ranks (a power of two, the last run may be
/// shorter) is on one host and talks over `local`; the first ranks of the runs talk over `leaders`. A run is a whole
/// subtree of the tree of tree.h, so sums have its bits.
class HierCommunicator final : public Communicator {
 public:
  /// `local`: the ranks of this rank's run. `leaders`: one rank a run, in order; null on all but the first ranks of the
  /// runs. `progress` must outlive it.
  HierCommunicator(std::unique_ptr<Communicator> local, std::unique_ptr<Communicator> leaders, int rank, int size,
                   int block, Progress& progress);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view transport() const override { return "hier"; }

  void all_reduce(std::span<float> data, Stream stream) override { reduce(data, stream); }
  void all_reduce(std::span<BF16> data, Stream stream) override { reduce(data, stream); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override;
  void broadcast(std::span<std::byte> data, int root, Stream stream) override;
  void barrier() override;
  void report_progress() override { local_->report_progress(); }

 private:
  template <typename T>
  void reduce(std::span<T> data, Stream stream);
  /// This run's part of an all_gather, as long as that of a whole run, on every rank of the run.
  std::span<const std::byte> gather_run(std::span<const std::byte> mine, Stream stream);

  std::unique_ptr<Communicator> local_;
  std::unique_ptr<Communicator> leaders_;
  int rank_;
  int size_;
  int block_;
  Progress& progress_;
  std::vector<std::byte> run_;   // scratch
  std::vector<std::byte> runs_;  // scratch
};

}  // namespace specdec
