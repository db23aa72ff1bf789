#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

#include "backend/backend.h"

/// Memory of the current device, for files that nvcc compiles.
namespace specdec::cuda {

/// Zero-filled.
class DeviceBuffer final : public Buffer {
 public:
  explicit DeviceBuffer(std::size_t bytes);

  std::byte* data() override { return memory_.get(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

/// What a call hands to its kernels besides activations: positions, slots, ranges. Kept in turn in one buffer, which a stream reads and writes in
/// order: what is overwritten has been read.
class Parameters {
 public:
  explicit Parameters(cudaStream_t stream);

  /// A copy of `values` on the device, good for the kernels of the same call.
  template <typename T>
  const T* keep(std::span<const T> values) {
    return reinterpret_cast<const T*>(keep_bytes(std::as_bytes(values)));
  }
  /// Memory for results of the same call, to be read before the next one.
  template <typename T>
  T* take(std::size_t count) {
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T)));
  }

 private:
  const std::byte* keep_bytes(std::span<const std::byte> bytes);
  std::byte* take_bytes(std::size_t bytes);

  cudaStream_t stream_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::size_t used_ = 0;
};

}  // namespace specdec::cuda
