#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/kernels/tensor_shape.h"

/// Shapes of the product on tensor cores (tensor_shape.h) that product_bench times beside one another.
namespace specdec {

struct TensorVariant {
  cuda::TensorShape shape;
  /// The product (with `overlap` as cuda.overlap has it), and before it the packing of its inputs to `packed` where the shape has it.
  void (*enqueue)(cudaStream_t stream, bool overlap, const cuda::TensorView& view, ConstRows x, cuda::Inputs4* packed,
                  Rows y);

  const void* kernel;

  /// "8 warps, 2x1, 4 ahead, shared": as tests/gpu/resources.py has it.
  std::string name() const;
};

/// Asks for `percent` of a multiprocessor's cache as memory of blocks, for all launches of the variants; -1: as the driver sees fit.
void prefer_shared_memory(int percent);

/// Those for up to 8 rows, up to 16, up to 64, and on vector units for up to 3.
std::vector<TensorVariant> tensor_variants();

/// bf16 numbers of about one, everywhere different: zeros would be read with less power.
void fill_with_halves(cudaStream_t stream, std::byte* memory, std::size_t bytes);

}  // namespace specdec
