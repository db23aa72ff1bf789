#pragma once

#include "backend/cpu/matmul_block.h"

/// Kernels of int8, once for all instruction sets. `V` is SkinnyMatmul's, with what a group of int8 needs:
///
///   Dots                       16 sums of products, which multiply_add() adds to
///   start(n)                   where they begin
///   load_scales, add_scaled    what a group adds to a slice
///   quantise                   quantise_group() of backend/int8.h
///   put                        four integers as broadcast() takes them
///   kOffset                    what the weights are read as larger by
namespace specdec {

/// MatmulKernel::pack: for each group the headers of the rows side by side, then its steps.
template <class V>
void pack_int8(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, std::byte* packed) {
  constexpr std::int64_t kGroup = kInt8GroupSteps * kInt8StepInputs;
  for (; count > 0; x += kGroup, count -= kGroup) {
    const std::int64_t inputs = count < kGroup ? count : kGroup;
    const std::int64_t steps = (inputs + kInt8StepInputs - 1) / kInt8StepInputs;
    std::byte* const first_step = packed + rows * sizeof(Int8Header);
    for (std::int64_t r = 0; r < rows; ++r) {
      // V fills whole vectors with zeros, and so the row's last step.
      alignas(64) std::int8_t integers[kGroup];
      Int8Header header = {.scale = V::quantise(x + r * stride, inputs, integers), .start = 0};
      std::byte* to = first_step + r * V::kInputBytes;
      for (std::int64_t s = 0; s < steps; ++s, to += rows * V::kInputBytes) {
        V::put(integers + s * kInt8StepInputs, to);
      }
      if constexpr (V::kOffset != 0) {
        std::int32_t sum = 0;
        for (std::int64_t i = 0; i < steps * kInt8StepInputs; ++i) {
          sum += integers[i];
        }
        header.start = -V::kOffset * sum;
      }
      __builtin_memcpy(packed + r * sizeof header, &header, sizeof header);
    }
    packed = first_step + steps * rows * V::kInputBytes;
  }
}

template <class V>
constexpr MatmulKernel make_int8_kernel() {
  return SkinnyMatmul<V>::kernel_packing(&pack_int8<V>, sizeof(Int8Header));
}

}  // namespace specdec
