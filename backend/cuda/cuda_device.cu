#include <fmt/format.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/device_choice.h"
#include "backend/error.h"

namespace specdec {
namespace {

/// Every way to have no GPU ends here: no driver, one too old for this runtime, or CUDA_VISIBLE_DEVICES that names none.
int count_devices() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) {
    throw_bad_input(
        fmt::format("backend: found \"cuda\", expected an NVIDIA GPU and its driver: {}", cudaGetErrorString(status)));
  }
  return devices;
}

}  // namespace

void cuda_check(cudaError_t status, std::string_view what, std::source_location where) {
  if (status == cudaSuccess) {
    return;
  }
  const ErrorKind kind = status == cudaErrorMemoryAllocation ? ErrorKind::kBadInput : ErrorKind::kInternal;
  throw Error(kind, fmt::format("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status)), where);
}

CudaDevice::CudaDevice(const CudaOptions& options) : index_(choose_device(options, count_devices())) {
  use();
  cuda_check(cudaGetDeviceProperties(&properties_, index_), "cudaGetDeviceProperties");
}

void CudaDevice::use() const { cuda_check(cudaSetDevice(index_), "cudaSetDevice"); }

std::string CudaDevice::description() const {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  return fmt::format("{}, compute capability {}.{}, {:.1f} GiB", properties_.name, properties_.major, properties_.minor,
                     static_cast<double>(properties_.totalGlobalMem) / kGiB);
}

}  // namespace specdec
