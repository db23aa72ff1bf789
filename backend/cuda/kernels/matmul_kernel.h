#pragma once

#include <bit>
#include <cstdint>

#include "backend/cpu/matmul_kernel.h"
#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/tree_sum.h"
#include "backend/elementary.h"
#include "backend/tensor.h"

namespace specdec::cuda {

/// A packed weight matrix on the device, as CpuPackedLinear lays it out: panels of 16 outputs, a step of a panel being one input of 16
/// outputs in fp32 or two neighbouring inputs in bf16.
struct PackedView {
  const std::byte* panels = nullptr;
  std::int64_t outputs = 0;
  std::int64_t steps = 0;                      ///< of a panel, all slices
  const std::int64_t* slice_begin = nullptr;   ///< [slices] first input
  const std::int64_t* slice_inputs = nullptr;  ///< [slices]
  std::int64_t slices = 0;
  bool bf16 = true;

  /// Of a slice, those of zeros included.
  SPECDEC_DEVICE std::int64_t steps_of(std::int64_t slice) const {
    const std::int64_t inputs = slice_inputs[slice];
    return bf16 ? (inputs + 2 * kTileSteps - 1) / (2 * kTileSteps) * kTileSteps : inputs;
  }
};

inline constexpr int kMatmulThreads = 128;
inline constexpr int kMatmulRows = 4;

/// y = x w^T in the order of the CPU's AVX-512 kernels, so with their bits: an output is one chain of fused multiply-adds down its slice, of two bf16
/// inputs the second first, and the chains of its slices meet in the fixed tree. A thread has one output of kMatmulRows rows; blocks (x: kMatmulThreads
/// outputs, y: rows). `x` is rounded already where weights are bf16. Reads weights at what a vector kernel reaches: the plain one that others are
/// compared with.
template <class Gpu>
SPECDEC_DEVICE void matmul(Gpu& gpu, PackedView weight, ConstRows x, Rows y) {
  using elementary::fused;
  const std::int64_t output = gpu.block_x() * kMatmulThreads + gpu.thread();
  const std::int64_t first_row = gpu.block_y() * kMatmulRows;
  if (output >= weight.outputs) {
    return;
  }
  const std::int64_t lane = output % kPanelOutputs;
  const std::byte* step = weight.panels + output / kPanelOutputs * weight.steps * kStepBytes + lane * 4;
  for (std::int64_t row = first_row; row < first_row + kMatmulRows && row < x.rows; ++row) {
    const std::byte* at = step;
    TreeSum tree;
    for (std::int64_t slice = 0; slice < weight.slices; ++slice) {
      const std::int64_t inputs = weight.slice_inputs[slice];
      const float* in = x.row(row) + weight.slice_begin[slice];
      float sum = inputs == 0 ? -0.0F : 0.0F;
      if (weight.bf16) {
        const std::int64_t padded = 2 * weight.steps_of(slice);
        for (std::int64_t k = 0; k < padded; k += 2, at += kStepBytes) {
          const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(at);
          const float even = k < inputs ? in[k] : 0.0F;
          const float odd = k + 1 < inputs ? in[k + 1] : 0.0F;
          sum = fused(std::bit_cast<float>(pair & 0xffff0000U), odd, sum);
          sum = fused(std::bit_cast<float>(pair << 16), even, sum);
        }
      } else {
        for (std::int64_t k = 0; k < inputs; ++k, at += kStepBytes) {
          sum = fused(*reinterpret_cast<const float*>(at), in[k], sum);
        }
      }
      tree.add(sum);
    }
    y.row(row)[output] = tree.total();
  }
}

}  // namespace specdec::cuda
