#pragma once

#include <cstdint>

#include "parallel/communicator.h"
#include "parallel/tracer.h"

namespace specdec {

/// What a rank has spent in one kind of collective, waiting for the other ranks included.
struct OperationTotals {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< of this rank's payload (what it contributes, not what travels)
  double seconds = 0;
};

struct CollectiveTotals {
  OperationTotals all_reduce;
  OperationTotals all_gather;
  OperationTotals gather;
  OperationTotals broadcast;
  OperationTotals barrier;

  double seconds() const {
    return all_reduce.seconds + all_gather.seconds + gather.seconds + broadcast.seconds + barrier.seconds;
  }
};

/// Counts and times the operations of another communicator, and shows them to a tracer: two readings of the clock a call, for both. Where the inner
/// one is on a device, an all-reduce takes what the host needs to enqueue it: the device's time shows where the host next waits.
class TimedCommunicator final : public Communicator {
 public:
  /// `group` numbers the communicators of one tracer, alike on all ranks.
  explicit TimedCommunicator(Communicator& inner, Tracer* tracer = nullptr, std::int32_t group = 0)
      : inner_(inner), tracer_(tracer), group_(group) {}

  /// Running totals; a phase's share is the difference of two readings.
  const CollectiveTotals& totals() const { return totals_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view transport() const override { return inner_.transport(); }
  bool on_device() const override { return inner_.on_device(); }

  void all_reduce(std::span<float> data, Stream stream) override;
  void all_reduce(std::span<BF16> data, Stream stream) override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override;
  void broadcast(std::span<std::byte> data, int root, Stream stream) override;
  void barrier() override;
  void report_progress() override { inner_.report_progress(); }
  void poll() override { inner_.poll(); }

 private:
  class Call;

  Communicator& inner_;
  Tracer* tracer_;
  std::int32_t group_;
  CollectiveTotals totals_;
};

}  // namespace specdec
