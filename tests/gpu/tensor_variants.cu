#include <fmt/format.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_gpu.h"
#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/cuda/tensor_choice.h"
#include "tests/gpu/tensor_variants.h"

namespace specdec {
namespace {

using cuda::CudaGpu;
using cuda::TensorShape;

template <TensorShape kShape>
void enqueue(cudaStream_t stream, bool overlap, const cuda::TensorView& view, ConstRows x, cuda::Inputs4* packed,
             Rows y) {
  const std::int64_t blocks = (x.rows + kShape.rows() - 1) / kShape.rows();
  if constexpr (kShape.packed) {
    const cuda::Grid grid{.x = view.steps, .y = blocks * kShape.columns, .threads = cuda::kWarp};
    cuda_check(cuda::Launch<&cuda::pack_inputs<CudaGpu, kShape.type>>::on(stream, overlap, grid, view, x,
                                                                          std::int32_t{kShape.columns}, packed),
               "pack_inputs");
  }
  const cuda::Grid grid{.x = blocks,
                        .y = (view.outputs.tiles() + kShape.tiles - 1) / kShape.tiles,
                        .threads = kShape.threads(),
                        .shared_bytes = kShape.shared_bytes(view.stack)};
  cuda_check(cuda::Launch<&cuda::tensor_matmul<CudaGpu, kShape>>::on(
                 stream, overlap, grid, view, cuda::TensorInputs{x, packed}, cuda::TensorOutputs{y}),
             "tensor_matmul");
}

template <TensorShape... kShapes>
void add(std::vector<TensorVariant>& variants) {
  (variants.push_back(
       {kShapes, &enqueue<kShapes>,
        reinterpret_cast<const void*>(&cuda::kernel<&cuda::tensor_matmul<CudaGpu, kShapes>, cuda::TensorView,
                                                    cuda::TensorInputs, cuda::TensorOutputs>)}),
   ...);
}

template <int kColumns>
void add_decode(std::vector<TensorVariant>& variants) {
  add<TensorShape{.tiles = 1, .columns = kColumns, .depth = 4},
      TensorShape{.tiles = 1, .columns = kColumns, .depth = 6},
      TensorShape{.tiles = 1, .columns = kColumns, .depth = 8},
      TensorShape{.tiles = 1, .columns = kColumns, .depth = 12},
      TensorShape{.tiles = 2, .columns = kColumns, .depth = 4},
      TensorShape{.tiles = 2, .columns = kColumns, .depth = 8},
      TensorShape{.tiles = 4, .columns = kColumns, .depth = 4}>(variants);
  add<TensorShape{.warps = 4, .tiles = 1, .columns = kColumns, .depth = 8},
      TensorShape{.warps = 4, .tiles = 2, .columns = kColumns, .depth = 8},
      TensorShape{.warps = 16, .tiles = 1, .columns = kColumns, .depth = 4},
      TensorShape{.warps = 16, .tiles = 1, .columns = kColumns, .depth = 8},
      TensorShape{.tiles = 1, .columns = kColumns, .depth = 4, .shared = false},
      TensorShape{.tiles = 1, .columns = kColumns, .depth = 8, .shared = false},
      TensorShape{.tiles = 2, .columns = kColumns, .depth = 4, .shared = false},
      TensorShape{.warps = 16, .tiles = 1, .columns = kColumns, .depth = 4, .shared = false},
      TensorShape{.tiles = 2, .columns = kColumns, .depth = 8, .packed = true}>(variants);
}

__global__ void fill(std::uint32_t* words, std::size_t count) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    // Any mixing will do. Each half: a sign, an exponent of 2^-1 or 2^0, and all of the mantissa.
    auto mixed = static_cast<std::uint32_t>(i) * 0x9e3779b9U + static_cast<std::uint32_t>(i >> 32);
    mixed = (mixed ^ (mixed >> 16)) * 0x85ebca6bU;
    mixed = (mixed ^ (mixed >> 13)) * 0xc2b2ae35U;
    words[i] = ((mixed ^ (mixed >> 16)) & 0x80ff80ffU) | 0x3f003f00U;
  }
}

}  // namespace

std::string TensorVariant::name() const {
  return fmt::format("{} warps, {}x{}, {} ahead,{}{}{}", shape.warps, shape.tiles, shape.columns, shape.depth,
                     shape.shared ? " shared" : "", shape.packed ? " packed" : "", shape.vector ? " vector" : "");
}

std::vector<TensorVariant> tensor_variants() {
  std::vector<TensorVariant> variants;
  add_decode<1>(variants);
  add_decode<2>(variants);
  add<cuda::prefill_shape<DType::kBF16, false>(), cuda::prefill_shape<DType::kBF16, true>(),
      TensorShape{.columns = 8, .depth = 2, .packed = true}, TensorShape{.columns = 8, .depth = 4, .packed = true},
      TensorShape{.tiles = 2, .columns = 8, .depth = 4, .packed = true},
      TensorShape{.tiles = 2, .columns = 8, .depth = 2, .packed = true},
      TensorShape{.columns = 2, .depth = 6, .packed = true}>(variants);
  add<cuda::vector_shape<DType::kBF16, 1>(), cuda::vector_shape<DType::kBF16, 3>(),
      TensorShape{.warps = 16, .columns = 1, .depth = 4, .shared = false, .vector = true},
      TensorShape{.tiles = 2, .columns = 1, .depth = 8, .vector = true}>(variants);
  return variants;
}

void prefer_shared_memory(int percent) {
  for (const TensorVariant& variant : tensor_variants()) {
    cuda_check(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent),
               "cudaFuncSetAttribute");
  }
}

void fill_with_halves(cudaStream_t stream, std::byte* memory, std::size_t bytes) {
  fill<<<1024, 256, 0, stream>>>(reinterpret_cast<std::uint32_t*>(memory), bytes / sizeof(std::uint32_t));
  cuda_check(cudaGetLastError(), "fill");
}

}  // namespace specdec
