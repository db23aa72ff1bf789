#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_gpu.h"
#include "tests/gpu/philox_on_device.h"

namespace specdec::battery {

std::vector<PhiloxNumber> philox_on_device(int blocks, int threads) {
  std::vector<PhiloxNumber> numbers(static_cast<std::size_t>(blocks) * threads);
  const std::size_t bytes = numbers.size() * sizeof(PhiloxNumber);
  PhiloxNumber* on_device = nullptr;
  cuda_check(cudaMalloc(&on_device, bytes), "cudaMalloc");
  cuda_check(
      cuda::Launch<&philox_numbers<cuda::CudaGpu>>::on(nullptr, false, {.x = blocks, .threads = threads}, on_device),
      "a kernel's launch");
  cuda_check(cudaMemcpy(numbers.data(), on_device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  cuda_check(cudaFree(on_device), "cudaFree");
  return numbers;
}

}  // namespace specdec::battery
