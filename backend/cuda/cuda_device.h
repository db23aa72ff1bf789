#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>
#include <string_view>

#include "backend/cuda/cuda_backend.h"

namespace specdec {

/// Throws Error(kInternal) when a call of the CUDA runtime failed; `what` names the call. A GPU that runs out of memory is kBadInput: a
/// smaller model, or more ranks, help.
void cuda_check(cudaError_t status, std::string_view what,
                std::source_location where = std::source_location::current());

/// The GPU of this rank, made the calling thread's current device.
class CudaDevice {
 public:
  /// Throws kBadInput where there is no GPU or no driver, and as choose_device() does.
  explicit CudaDevice(const CudaOptions& options);

  /// As the runtime numbers the devices that it sees.
  int index() const { return index_; }
  const cudaDeviceProp& properties() const { return properties_; }
  /// "NVIDIA H200, compute capability 9.0, 139.8 GiB": for reports.
  std::string description() const;

  /// For a thread that did not open it: which device is current is a thread's own.
  void use() const;

 private:
  int index_ = 0;
  cudaDeviceProp properties_{};
};

}  // namespace specdec
