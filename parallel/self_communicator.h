#pragma once

#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// One rank: every operation is free. Still a sign of life, since a draft on one rank computes long while the others
/// wait for it.
class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator() = default;
  /// Each operation ticks `progress`, which must outlive the communicator.
  explicit SelfCommunicator(Progress& progress) : progress_(&progress) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view transport() const override { return "self"; }

  void all_reduce(std::span<float> data, Stream stream) override;
  void all_reduce(std::span<BF16> data, Stream stream) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override;
  void broadcast(std::span<std::byte> data, int root, Stream stream) override;
  void barrier() override { report_progress(); }
  void report_progress() override {
    if (progress_ != nullptr) {
      progress_->tick();
    }
  }

 private:
  Progress* progress_ = nullptr;
};

}  // namespace specdec
