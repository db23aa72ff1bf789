#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "parallel/communicator.h"

namespace specdec {

/// What transports between GPUs have in common: payloads are theirs, and all that lies in host memory goes over a transport of the host, between the same
/// ranks.
class DeviceCommunicator : public Communicator {
 public:
  explicit DeviceCommunicator(std::unique_ptr<Communicator> host) : host_(std::move(host)) {}

  int rank() const final { return host_->rank(); }
  int size() const final { return host_->size(); }
  bool on_device() const final { return true; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream /*stream*/) final {
    host_->all_gather(mine, all, Stream{});
  }
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, int root, Stream /*stream*/) final {
    host_->gather(mine, all, root, Stream{});
  }
  void broadcast(std::span<std::byte> data, int root, Stream /*stream*/) final {
    host_->broadcast(data, root, Stream{});
  }
  void barrier() final { host_->barrier(); }
  void report_progress() final { host_->report_progress(); }

 protected:
  Communicator& host() { return *host_; }

 private:
  std::unique_ptr<Communicator> host_;
};

}  // namespace specdec
