#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/thread_pool.h"
#include "backend/cuda/gpu_backend.h"
#include "backend/error.h"
#include "backend/host_buffer.h"
#include "tests/support/emulated_gpu.h"

namespace specdec {

/// A GPU without one: memory of the host, and kernels that have run when their launch returns. What a graph may not hold (copies, allocations, waits) throws
/// while one is recorded.
class EmulatedDevice {
 public:
  using Gpu = EmulatedGpu;
  /// Launches with copies of their arguments, as a graph has them.
  using Recording = std::vector<std::function<void()>>;

  std::string description() const { return "emulated"; }
  void* stream() const { return nullptr; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) {
    require_not_recording();
    return std::make_unique<HostBuffer>(bytes);
  }
  void upload(std::byte* to, std::span<const std::byte> from) {
    require_not_recording();
    std::ranges::copy(from, to);
  }
  void download(std::span<std::byte> to, const std::byte* from) {
    require_not_recording();
    std::copy_n(from, to.size(), to.begin());
  }
  void synchronize() { require_not_recording(); }
  void observe_waits(WaitObserver* /*observer*/) {}

  Recording record(const std::function<void()>& launches) {
    Recording recording;
    recording_ = &recording;
    launches();
    recording_ = nullptr;
    return recording;
  }
  void replay(const Recording& recording) {
    for (const auto& launch : recording) {
      launch();
    }
    ++*replays_;
  }
  /// Counts replays, also when the device has been handed on.
  std::shared_ptr<const int> replays() const { return replays_; }

  template <auto kFunction, typename... Arguments>
  void launch(const cuda::Grid& grid, const Arguments&... arguments) {
    enqueue([=] {
      emulate(grid.x, grid.y, grid.threads, grid.shared_bytes, [&](EmulatedGpu& gpu) {
        flush_subnormals_to_zero();
        kFunction(gpu, arguments...);
      });
    });
  }

  /// In an order that no kernel of ours has: from the last input on.
  void multiply_by_library(DType dtype, const std::byte* weights, const std::byte* x, std::int64_t inputs, Rows y) {
    enqueue([=] {
      for (std::int64_t r = 0; r < y.rows; ++r) {
        for (std::int64_t n = 0; n < y.cols; ++n) {
          float sum = 0;
          for (std::int64_t k = inputs - 1; k >= 0; --k) {
            sum += load_as_float(weights, dtype, n * inputs + k) * load_as_float(x, dtype, r * inputs + k);
          }
          y.row(r)[n] = sum;
        }
      }
    });
  }

 private:
  void enqueue(std::function<void()> work) {
    if (recording_ != nullptr) {
      recording_->push_back(std::move(work));
    } else {
      work();
    }
  }
  void require_not_recording() const { check(recording_ == nullptr, "a graph holds launches only"); }

  Recording* recording_ = nullptr;
  std::shared_ptr<int> replays_ = std::make_shared<int>(0);
};

using EmulatedBackend = cuda::GpuBackend<EmulatedDevice>;

}  // namespace specdec
