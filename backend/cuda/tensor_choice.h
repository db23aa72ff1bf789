#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/tensor_shape.h"

/// Which TensorShape is taken for which product. Reasoned, not measured: tests/gpu/product_bench.cu times these and others beside them.
namespace specdec::cuda {

/// Warps of a block. Sixteen leaves, which a layer of 4096 inputs has, are two each.
inline constexpr int kTensorWarps = 8;

/// With fewer outputs than that, too few blocks for 132 multiprocessors have twice as many warps, each with one leaf of 4096 inputs.
inline constexpr int kManyWarps = 16;
inline constexpr std::int64_t kFewOutputs = 2112;

/// From so many outputs on, blocks of 32 are enough to fill 132 multiprocessors three times, and inputs are read half as often.
inline constexpr std::int64_t kWideOutputs = 12'288;

/// 1 to 8 rows (one column) or 9 to 16: 48 KiB of weights or more are on their way to each multiprocessor, from two or three blocks.
template <DType kType, int kColumns, bool kWide>
constexpr TensorShape decode_shape() {
  return {.type = kType, .warps = kTensorWarps, .tiles = kWide ? 2 : 1, .columns = kColumns, .depth = kWide ? 4 : 6};
}

template <DType kType, int kColumns>
constexpr TensorShape few_outputs_shape() {
  return {.type = kType, .warps = kManyWarps, .tiles = 1, .columns = kColumns, .depth = 4};
}

/// The same for inputs that have to be packed.
template <DType kType>
constexpr TensorShape packed_shape() {
  return {.type = kType, .warps = kTensorWarps, .tiles = 1, .columns = 2, .depth = 6, .packed = true};
}

/// More rows than 16: 64 read the weights once.
template <DType kType, bool kWide>
constexpr TensorShape prefill_shape() {
  return {.type = kType,
          .warps = kTensorWarps,
          .tiles = kWide ? 2 : 1,
          .columns = 8,
          .depth = kWide ? 4 : 2,
          .packed = true};
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
