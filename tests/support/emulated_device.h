#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "backend/cpu/thread_pool.h"
#include "backend/cuda/gpu_backend.h"
#include "backend/host_buffer.h"
#include "tests/support/emulated_gpu.h"

namespace specdec {

/// A GPU without one: memory of the host, and kernels that have run when their launch returns.
class EmulatedDevice {
 public:
  using Gpu = EmulatedGpu;

  std::string description() const { return "emulated"; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) { return std::make_unique<HostBuffer>(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) { std::ranges::copy(from, to); }
  void download(std::span<std::byte> to, const std::byte* from) { std::copy_n(from, to.size(), to.begin()); }
  void synchronize() {}

  template <auto kFunction, typename... Arguments>
  void launch(const cuda::Grid& grid, const Arguments&... arguments) {
    emulate(grid.x, grid.y, grid.threads, grid.shared_bytes, [&](EmulatedGpu& gpu) {
      flush_subnormals_to_zero();
      kFunction(gpu, arguments...);
    });
  }
};

using EmulatedBackend = cuda::GpuBackend<EmulatedDevice>;

}  // namespace specdec
