#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/tensor_shape.h"

/// Which TensorShape is taken for which product: what product_bench (tests/gpu/product_bench.cpp) found fastest or next to it on an H200, for the layers of Llama 3 8B
/// on 1 and 8 ranks.
namespace specdec::cuda {

/// Warps of a block. Sixteen leaves, which a layer of 4096 inputs has, are two each.
inline constexpr int kTensorWarps = 8;

/// With fewer outputs than that, too few blocks for 132 multiprocessors have twice as many warps, each with one leaf of 4096 inputs.
inline constexpr int kManyWarps = 16;
inline constexpr std::int64_t kFewOutputs = 2112;

/// From so many outputs on, more blocks of less memory each have as many loads under way.
inline constexpr std::int64_t kManyOutputs = 4608;

/// 1 to 8 rows.
template <DType kType, bool kMany>
constexpr TensorShape decode_shape() {
  return {.type = kType, .warps = kTensorWarps, .tiles = 1, .columns = 1, .depth = kMany ? 4 : 6};
}

/// 9 to 16: two tiles share what is read of the inputs, which are as many bytes as the weights.
template <DType kType>
constexpr TensorShape wide_shape() {
  return {.type = kType, .warps = kTensorWarps, .tiles = 2, .columns = 2, .depth = 4};
}

template <DType kType, int kColumns>
constexpr TensorShape few_outputs_shape() {
  return {.type = kType, .warps = kManyWarps, .tiles = 1, .columns = kColumns, .depth = 4};
}

/// Up to 16 rows, for inputs that have to be packed, and where so many outputs read them that halving their bytes pays for packing.
template <DType kType>
constexpr TensorShape packed_shape() {
  return {.type = kType, .warps = kTensorWarps, .tiles = 1, .columns = 2, .depth = 6, .packed = true};
}
inline constexpr std::int64_t kPackedOutputs = 12'288;

/// More rows than 16: 32 read the weights once. `kRoomy`: for layouts that leave the memory for it.
template <DType kType, bool kRoomy>
constexpr TensorShape prefill_shape() {
  return {.type = kType, .warps = kTensorWarps, .tiles = kRoomy ? 2 : 1, .columns = 4, .depth = 4, .packed = true};
}
/// Of a block's memory, what all GPUs since compute capability 8.0 that have tensor cores for servers give.
inline constexpr std::size_t kPrefillMemory = std::size_t{160} * 1024;

/// 1 to 3 rows by multiply-adds of the vector units.
template <DType kType, int kRows>
constexpr TensorShape vector_shape() {
  return {.type = kType,
          .warps = kTensorWarps,
          .tiles = 1,
          .columns = kRows,
          .depth = kRows == 1 ? 8 : 4,
          .shared = false,
          .vector = true};
}
inline constexpr std::int64_t kVectorRows = 3;

}  // namespace specdec::cuda
