#include <sched.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_gpu.h"
#include "backend/cuda/gpu_backend.h"

namespace specdec {
namespace {

class DeviceBuffer final : public Buffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    cuda_check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    memory_.reset(static_cast<std::byte*>(memory));
    cuda_check(cudaMemset(memory, 0, bytes), "cudaMemset");
    // The default stream's work is not ordered before that of a stream that does not block on it.
    cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  std::byte* data() override { return memory_.get(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

/// A GPU and one stream of its own, in which everything happens.
class StreamDevice {
 public:
  using Gpu = cuda::CudaGpu;

  explicit StreamDevice(const CudaOptions& options) : device_(options) {
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.reset(stream);
  }

  std::string description() const { return "cuda (" + device_.description() + ")"; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes) { return std::make_unique<DeviceBuffer>(bytes); }

  /// From pageable memory: it has been read when the call returns.
  void upload(std::byte* to, std::span<const std::byte> from) {
    cuda_check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_.get()), "cudaMemcpyAsync");
  }
  void download(std::span<std::byte> to, const std::byte* from) {
    cuda_check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_.get()), "cudaMemcpyAsync");
  }
  /// Polls: a rank that is blocked in the driver could not be told that the job ends.
  void synchronize() {
    cudaError_t status = cudaStreamQuery(stream_.get());
    for (; status == cudaErrorNotReady; status = cudaStreamQuery(stream_.get())) {
      sched_yield();
    }
    cuda_check(status, "cudaStreamQuery");
  }

  template <auto kFunction, typename... Arguments>
  void launch(const cuda::Grid& grid, const Arguments&... arguments) {
    cuda::Launch<kFunction>::on(stream_.get(), grid, arguments...);
    cuda_check(cudaGetLastError(), "a kernel's launch");
  }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  CudaDevice device_;
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<cuda::GpuBackend<StreamDevice>>(StreamDevice(options), options.cpu_order);
}

}  // namespace specdec
