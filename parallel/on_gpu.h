#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/cuda/cuda_device.h"
#include "parallel/agree.h"
#include "parallel/backoff.h"

/// For the transports on a GPU, in builds for it: what they need of the CUDA runtime.
namespace specdec::on_gpu {

/// The GPU of this rank, the same that its backend takes. Throws AgreedError, on every rank, where one has none; the message begins with "PLACE: found NAME".
inline CudaDevice open_device(Communicator& host, const CudaOptions& options, std::string_view place,
                              std::string_view name) {
  return agree(host, [&] {
    try {
      return CudaDevice(options);
    } catch (const Error& error) {
      throw Error(error.kind(), std::string(place) + ": found " + std::string(name) + "; " + error.what());
    }
  });
}

/// Zero-filled memory of the current device.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    cuda_check(cudaMalloc(&memory, bytes), "cudaMalloc");
    memory_.reset(static_cast<std::byte*>(memory));
    cuda_check(cudaMemset(memory, 0, bytes), "cudaMemset");
    cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  std::byte* data() const { return memory_.get(); }
  std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

/// A stream of the current device.
class OwnStream {
 public:
  OwnStream() {
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.reset(stream);
  }
  cudaStream_t get() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

/// Returns when all work in `stream` is done; never blocks in the driver. poll() is called meanwhile and may throw.
template <typename Poll>
void wait_for(cudaStream_t stream, Poll&& poll) {
  constexpr int kPolls = 1000;
  Backoff backoff(kPolls);
  cudaError_t status = cudaStreamQuery(stream);
  for (; status == cudaErrorNotReady; status = cudaStreamQuery(stream)) {
    poll();
    backoff.pause();
  }
  cuda_check(status, "cudaStreamQuery");
}

}  // namespace specdec::on_gpu
