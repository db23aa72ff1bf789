#include <algorithm>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_memory.h"

namespace specdec::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kParameterBytes = std::size_t{4} << 20;

}  // namespace

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  cuda_check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  memory_.reset(static_cast<std::byte*>(memory));
  cuda_check(cudaMemset(memory, 0, bytes), "cudaMemset");
  // A memset of the default stream is not ordered before work of a stream that does not block on it.
  cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

Parameters::Parameters(cudaStream_t stream)
    : stream_(stream), memory_(std::make_unique<DeviceBuffer>(kParameterBytes)) {}

const std::byte* Parameters::keep_bytes(std::span<const std::byte> bytes) {
  std::byte* const to = take_bytes(bytes.size());
  // From pageable memory: `bytes` are read before this returns.
  cuda_check(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  return to;
}

std::byte* Parameters::take_bytes(std::size_t bytes) {
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole > memory_->bytes()) {
    cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");  // kernels may still read the old one
    memory_ = std::make_unique<DeviceBuffer>(2 * whole);
    used_ = 0;
  }
  if (used_ + whole > memory_->bytes()) {
    used_ = 0;
  }
  std::byte* const at = memory_->data() + used_;
  used_ += whole;
  return at;
}

}  // namespace specdec::cuda
