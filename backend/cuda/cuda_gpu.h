#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/grid.h"

/// For files that nvcc compiles: a thread of a block on a device, as kernels/device.h wants it, and how kernels are launched with it.
namespace specdec::cuda {

struct CudaGpu {
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ std::int64_t block_x() const { return blockIdx.x; }
  __device__ std::int64_t block_y() const { return blockIdx.y; }
  __device__ void sync() { __syncthreads(); }
  /// From here on the next kernel's blocks may start where there is room; they wait in wait_for_previous().
  __device__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
  }
  __device__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  template <typename T>
  __device__ T shuffle(T value, int lane) {
    return __shfl_sync(0xffffffffU, value, lane);
  }
  __device__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  __device__ std::byte* shared() {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<std::byte*>(memory);
  }
};

template <auto kFunction, typename... Parameters>
__global__ void kernel(Parameters... parameters) {
  CudaGpu gpu;
  gpu.let_next_start();
  gpu.wait_for_previous();
  kFunction(gpu, parameters...);
}

template <auto kFunction>
struct Launch;

/// Launch<&rms_norm<CudaGpu>>::on(stream, overlap, grid, x, ...). With `overlap` its blocks may start while the kernel before it ends (programmatic
/// dependent launch), which hides what a launch costs; every kernel waits for the one before it, and so for all.
template <typename... Parameters, void (*kFunction)(CudaGpu&, Parameters...)>
struct Launch<kFunction> {
  static cudaError_t on(cudaStream_t stream, bool overlap, const Grid& grid, Parameters... parameters) {
    if (grid.x == 0 || grid.y == 0) {
      return cudaSuccess;
    }
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
    config.blockDim = dim3(static_cast<unsigned>(grid.threads));
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel<kFunction, Parameters...>, parameters...);
  }
};

}  // namespace specdec::cuda
