#pragma once

#include <algorithm>
#include <chrono>
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

/// Of an emulated device, which is done with everything at once.
class EmulatedMoments final : public Moments {
 public:
  explicit EmulatedMoments(int count) : at_(static_cast<std::size_t>(count)) {}
  void mark(int which) override { at_[which] = std::chrono::steady_clock::now(); }
  double between(int from, int to) const override { return std::chrono::duration<double>(at_[to] - at_[from]).count(); }

 private:
  std::vector<std::chrono::steady_clock::time_point> at_;
};

/// A GPU without one: memory of the host, and kernels that have run when their launch returns. What was downloaded comes no sooner than it must. What a graph
/// may not hold (copies, allocations, waits) throws while one is recorded.
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
    downloads_->push_back({{from, from + to.size()}, to.data()});
  }
  void synchronize() {
    require_not_recording();
    for (const Download& download : *downloads_) {
      std::ranges::copy(download.bytes, download.to);
    }
    downloads_->clear();
    ++*waits_;
  }
  void observe_waits(WaitObserver* /*observer*/) {}
  std::unique_ptr<Moments> make_moments(int count) { return std::make_unique<EmulatedMoments>(count); }

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
  /// What kernels asked for ahead of its use, also when the device has been handed on.
  std::shared_ptr<const std::vector<EmulatedGpu::Asked>> asked() const { return asked_; }
  /// Counts replays, also when the device has been handed on.
  std::shared_ptr<const int> replays() const { return replays_; }
  /// The same of waits.
  std::shared_ptr<const int> waits() const { return waits_; }

  template <auto kFunction, typename... Arguments>
  void launch(const cuda::Grid& grid, const Arguments&... arguments) {
    enqueue([=, all_asked = asked_] {
      const auto asked = emulate(grid.x, grid.y, grid.threads, grid.shared_bytes, [&](EmulatedGpu& gpu) {
        flush_subnormals_to_zero();
        kFunction(gpu, arguments...);
      });
      all_asked->insert(all_asked->end(), asked.begin(), asked.end());
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
  struct Download {
    std::vector<std::byte> bytes;
    std::byte* to;
  };

  void enqueue(std::function<void()> work) {
    if (recording_ != nullptr) {
      recording_->push_back(std::move(work));
    } else {
      work();
    }
  }
  void require_not_recording() const { check(recording_ == nullptr, "a graph holds launches only"); }

  Recording* recording_ = nullptr;
  std::shared_ptr<std::vector<EmulatedGpu::Asked>> asked_ = std::make_shared<std::vector<EmulatedGpu::Asked>>();
  std::shared_ptr<int> replays_ = std::make_shared<int>(0);
  std::shared_ptr<int> waits_ = std::make_shared<int>(0);
  std::shared_ptr<std::vector<Download>> downloads_ =
      std::make_shared<std::vector<Download>>();  // of all copies of this
};

using EmulatedBackend = cuda::GpuBackend<EmulatedDevice>;
/// Of few threads, so that short rows have several parts.
using EmulatedRowSampler = cuda::GpuRowSampler<EmulatedDevice, 32, 64>;

}  // namespace specdec

// All of a GPU's kernels are in these, which take 14 s to compile and 35 with the sanitizers: once, in emulated_device.cpp.
extern template class specdec::cuda::GpuBackend<specdec::EmulatedDevice>;
extern template class specdec::cuda::GpuRowSampler<specdec::EmulatedDevice, 32, 64>;
