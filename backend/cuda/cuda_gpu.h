#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/grid.h"
#include "backend/dtype.h"

/// For files that nvcc compiles: a thread of a block on a device, as kernels/device.h wants it, and how kernels are launched with it.
namespace specdec::cuda {

struct CudaGpu {
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ std::int64_t block_x() const { return blockIdx.x; }
  __device__ std::int64_t block_y() const { return blockIdx.y; }
  __device__ void sync() { __syncthreads(); }
  __device__ bool sync_all(bool is) { return __syncthreads_and(is ? 1 : 0) != 0; }
  __device__ void sync_warp() { __syncwarp(); }
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
  __device__ void atomic_add(std::uint32_t* to, std::uint32_t value) { atomicAdd(to, value); }
  /// Subnormal floats become zero first, as float_to_bf16 has it.
  template <DType kType>
  __device__ std::uint32_t round_pair(float lower, float upper) {
    std::uint32_t pair;
    asm("mul.rn.ftz.f32 %0, %0, 0f3F800000;" : "+f"(lower));
    asm("mul.rn.ftz.f32 %0, %0, 0f3F800000;" : "+f"(upper));
    if constexpr (kType == DType::kF16) {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    } else {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    }
    return pair;
  }
  template <DType kType>
  __device__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    if constexpr (kType == DType::kF16) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
          "%2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
          "%2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
  __device__ void load_weights(std::uint32_t (&to)[4], const std::byte* from) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
  }
  __device__ void prefetch(const std::byte* from, std::int64_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
                 "r"(static_cast<std::uint32_t>(bytes))
                 : "memory");
#else
    constexpr std::int64_t kSector = 32;  // of a cache line, and perhaps all that comes
    for (std::int64_t at = 0; at < bytes; at += kSector) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from + at)));
    }
#endif
  }
  /// Past the first-level cache (cg), which is left to the inputs.
  __device__ void copy_once(std::byte* to, const std::byte* from) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(address_of(to)), "l"(from) : "memory");
  }
  template <int kBytes>
  __device__ void copy_or_zero(std::byte* to, const std::byte* from, bool is) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address_of(to)), "l"(from), "n"(kBytes),
                 "r"(is ? kBytes : 0)
                 : "memory");
  }
  __device__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kGroups>
  __device__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
  }
  __device__ void store_release(std::uint32_t* word, std::uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
  }
  __device__ std::uint32_t load_acquire(const std::uint32_t* word) {
    std::uint32_t value = 0;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ void pause() { __nanosleep(20); }
  __device__ std::byte* shared() {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<std::byte*>(memory);
  }

 private:
  static __device__ std::uint32_t address_of(std::byte* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
};

/// Whether a kernel waits itself until what this parameter refers to is there.
template <typename T>
inline constexpr bool kAwaited = requires {
  T::kAwaitedByKernel;
};

/// Whether a kernel with this parameter says itself when the next one may start.
template <typename T>
inline constexpr bool kLetsNextStart = requires {
  T::kLetsNextStart;
};

/// Whether a kernel with this parameter has to do with the registers that a multiprocessor has for a block of 1024 threads.
template <typename T>
inline constexpr bool kOf1024Threads = requires {
  T::kOf1024Threads;
};

template <auto kFunction, typename... Parameters>
__device__ void run_thread(const Parameters&... parameters) {
  CudaGpu gpu;
  if constexpr (!(kLetsNextStart<Parameters> || ...)) {
    gpu.let_next_start();
  }
  kFunction(gpu, parameters...);
}

template <auto kFunction, typename... Parameters>
__global__ void kernel(Parameters... parameters) {
  run_thread<kFunction>(parameters...);
}
template <auto kFunction, typename... Parameters>
__global__ void __launch_bounds__(1024) kernel_of_1024(Parameters... parameters) {
  run_thread<kFunction>(parameters...);
}

template <auto kFunction, typename... Parameters>
constexpr auto kernel_for() {
  if constexpr ((kOf1024Threads<Parameters> || ...)) {
    return &kernel_of_1024<kFunction, Parameters...>;
  } else {
    return &kernel<kFunction, Parameters...>;
  }
}

template <auto kFunction>
struct Launch;

/// More of a block's memory than this has to be asked for.
inline constexpr std::size_t kSharedByDefault = std::size_t{48} * 1024;

/// Launch<&rms_norm<CudaGpu>>::on(stream, overlap, grid, x, ...). With `overlap` the blocks of a kernel that waits itself may start while the kernel before it
/// ends (programmatic dependent launch): it has something to do until then. Others start when that has ended: their blocks, early and idle,
/// made a pass of Llama 3 8B slower on an H200 (5.7 ms beside 5.3).
template <typename... Parameters, void (*kFunction)(CudaGpu&, Parameters...)>
struct Launch<kFunction> {
  static cudaError_t on(cudaStream_t stream, bool overlap, const Grid& grid, Parameters... parameters) {
    if (grid.x == 0 || grid.y == 0) {
      return cudaSuccess;
    }
    if (grid.shared_bytes > kSharedByDefault) {
      // Once would be enough, but for which device would have to be remembered.
      const cudaError_t status =
          cudaFuncSetAttribute(kernel_for<kFunction, Parameters...>(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes));
      if (status != cudaSuccess) {
        return status;
      }
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
    config.numAttrs = overlap && (kAwaited<Parameters> || ...) ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel_for<kFunction, Parameters...>(), parameters...);
  }
};

}  // namespace specdec::cuda
