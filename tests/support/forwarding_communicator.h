#pragma once

#include "parallel/communicator.h"

namespace specdec::tests {

/// Does what another one does; for tests that change one operation.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view transport() const override { return inner_.transport(); }
  bool on_device() const override { return inner_.on_device(); }
  void all_reduce(std::span<float> data, Stream stream) override { inner_.all_reduce(data, stream); }
  void all_reduce(std::span<BF16> data, Stream stream) override { inner_.all_reduce(data, stream); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override {
    inner_.all_gather(mine, all, stream);
  }
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream stream) override {
    inner_.gather(mine, all, root, stream);
  }
  void broadcast(std::span<std::byte> data, int root, Stream stream) override { inner_.broadcast(data, root, stream); }
  void barrier() override { inner_.barrier(); }
  void report_progress() override { inner_.report_progress(); }
  void poll() override { inner_.poll(); }

 private:
  Communicator& inner_;
};

}  // namespace specdec::tests
