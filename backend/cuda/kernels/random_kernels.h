#pragma once

#include <bit>
#include <cstdint>

#include "backend/cpu/matmul_kernel.h"
#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/matmul_kernel.h"
#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/dtype.h"
#include "backend/random_elements.h"

/// Random weights, made where they will lie, with the bits that the host packs.
namespace specdec::cuda {

/// One of the matrices that a linear layer stacks along its outputs.
struct RandomRows {
  RandomElements elements;
  std::int64_t first_output = 0;  ///< of the layer
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
};

/// All of them, by first_output, of which the first is 0. The table is on the device.
struct RandomStack {
  const RandomRows* rows = nullptr;
  std::int64_t count = 0;

  SPECDEC_DEVICE float at(std::int64_t output, std::int64_t input) const {
    std::int64_t i = count - 1;
    while (output < rows[i].first_output) {
      --i;
    }
    return rows[i].elements[(output - rows[i].first_output) * rows[i].row_stride + input * rows[i].col_stride];
  }
};

inline constexpr int kRandomThreads = 256;

/// A table [rows, cols] in bf16, of which `row` is the one matrix. One block a row (x).
template <class Gpu>
SPECDEC_DEVICE void random_table(Gpu& gpu, RandomRows row, std::int64_t cols, std::uint16_t* table) {
  for (std::int64_t i = gpu.thread(); i < cols; i += gpu.threads()) {
    table[gpu.block_x() * cols + i] = float_to_bf16(row.elements[gpu.block_x() * row.row_stride + i * row.col_stride]);
  }
}

/// TensorLayout's weights. One block a tile (x); a warp makes the lanes of every eighth step.
template <class Gpu, DType kType>
SPECDEC_DEVICE void random_tiles(Gpu& gpu, TensorView weight, RandomStack stack, Weights8* weights) {
  const int lane = gpu.thread() % kWarp;
  Weights8* const tile = weights + gpu.block_x() * weight.steps * kWarp;
  for (std::int64_t step = gpu.thread() / kWarp; step < weight.steps; step += gpu.threads() / kWarp) {
    const Step of = weight.step[step];
    Weights8 made;
    for (int word = 0; word < 4; ++word) {
      const std::int64_t output = weight.outputs.at(gpu.block_x(), word % 2 * 8 + lane / 4);
      float pair[2] = {};
      for (int i = 0; i < 2; ++i) {
        const std::int32_t input = lane % 4 * 4 + word / 2 * 2 + i;
        if (output < weight.outputs.count && input < of.inputs) {
          pair[i] = stack.at(output, of.first_input + input);
        }
      }
      made.pair[word] = gpu.template round_pair<kType>(pair[0], pair[1]);
    }
    tile[step * kWarp + lane] = made;
  }
}

/// CpuPackedLinear's panels. One block a panel (x); 16 threads make a step.
template <class Gpu>
SPECDEC_DEVICE void random_panels(Gpu& gpu, PackedView weight, RandomStack stack, std::byte* panels) {
  const std::int64_t lane = gpu.thread() % kPanelOutputs;
  const std::int64_t output = gpu.block_x() * kPanelOutputs + lane;
  std::byte* at = panels + gpu.block_x() * weight.steps * kStepBytes + lane * 4;
  for (std::int64_t slice = 0; slice < weight.slices; ++slice) {
    const std::int64_t inputs = weight.slice_inputs[slice];
    const std::int64_t steps = weight.steps_of(slice);
    const std::int64_t first = weight.slice_begin[slice];
    for (std::int64_t step = gpu.thread() / kPanelOutputs; step < steps && output < weight.outputs;
         step += gpu.threads() / kPanelOutputs) {
      std::uint32_t word = 0;
      if (weight.bf16) {
        for (std::int64_t i = 2 * step; i < 2 * step + 2 && i < inputs; ++i) {
          word |= static_cast<std::uint32_t>(float_to_bf16(stack.at(output, first + i))) << (16 * (i % 2));
        }
      } else {
        word = std::bit_cast<std::uint32_t>(stack.at(output, first + step));
      }
      *reinterpret_cast<std::uint32_t*>(at + step * kStepBytes) = word;
    }
    at += steps * kStepBytes;
  }
}

}  // namespace specdec::cuda
