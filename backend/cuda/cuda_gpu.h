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
  kFunction(gpu, parameters...);
}

template <auto kFunction>
struct Launch;

/// Launch<&rms_norm<CudaGpu>>::on(stream, grid, x, ...). Errors of the launch itself are left for cudaGetLastError.
template <typename... Parameters, void (*kFunction)(CudaGpu&, Parameters...)>
struct Launch<kFunction> {
  static void on(cudaStream_t stream, const Grid& grid, Parameters... parameters) {
    if (grid.x == 0 || grid.y == 0) {
      return;
    }
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
    kernel<kFunction, Parameters...>
        <<<blocks, static_cast<unsigned>(grid.threads), grid.shared_bytes, stream>>>(parameters...);
  }
};

}  // namespace specdec::cuda
