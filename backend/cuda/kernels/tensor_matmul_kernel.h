#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/tree_sum.h"
#include "backend/cuda/tensor_layout.h"
#include "backend/dtype.h"
#include "backend/tensor.h"

/// The skinny product on tensor cores: 1 to 16 rows at a time, each weight read once for all of them.
namespace specdec::cuda {

/// What a lane loads at once.
struct alignas(16) Weights8 {
  std::uint32_t pair[4];
};
struct alignas(8) Inputs4 {
  std::uint32_t pair[2];
};

/// A TensorLayout on the device.
struct TensorView {
  const Weights8* weights = nullptr;  ///< [tiles][steps][32]
  const Step* step = nullptr;         ///< [steps]
  const Leaf* leaf = nullptr;         ///< [leaves]
  std::int64_t steps = 0;
  std::int64_t leaves = 0;
  std::int64_t outputs = 0;
};

inline constexpr int kTensorWarps = 8;
inline constexpr int kTensorThreads = kTensorWarps * kWarp;
/// Tiles of outputs that a warp works on side by side, so that inputs are read half as often.
inline constexpr int kTensorTiles = 2;
inline constexpr std::int64_t kTensorOutputs = kTensorTiles * kTileOutputs;
/// Rows of a block: two columns of tiles of 8.
inline constexpr std::int64_t kTensorRows = 16;
inline constexpr int kTensorSums = static_cast<int>(kTensorOutputs * kTensorRows);
inline constexpr std::size_t kTensorSharedBytes = std::size_t{kTensorWarps} * kTensorSums * sizeof(float);

/// Inputs of up to 16 rows, rounded to bf16 in the order of the B operand: [blocks of 16 rows][steps][2][32 lanes]. One block of 64 threads a step
/// (x) and block of rows (y).
inline constexpr int kPackThreads = 2 * kWarp;

template <class Gpu>
SPECDEC_DEVICE void pack_inputs(Gpu& gpu, TensorView weight, ConstRows x, Inputs4* packed) {
  const Step step = weight.step[gpu.block_x()];
  const int lane = gpu.thread() % kWarp;
  const std::int64_t row = gpu.block_y() * kTensorRows + gpu.thread() / kWarp * 8 + lane / 4;
  Inputs4 inputs;
  for (int word = 0; word < 2; ++word) {
    std::uint32_t pair = 0;
    for (int i = 0; i < 2; ++i) {
      const int input = word * 8 + lane % 4 * 2 + i;
      const bool is = row < x.rows && input < step.inputs;
      const float value = is ? x.row(row)[step.first_input + input] : 0.0F;
      pair |= static_cast<std::uint32_t>(float_to_bf16(value)) << (16 * i);
    }
    inputs.pair[word] = pair;
  }
  packed[(gpu.block_y() * weight.steps + gpu.block_x()) * kPackThreads + gpu.thread()] = inputs;
}

/// y = x w^T. Blocks: kTensorOutputs outputs (x), kTensorRows rows (y), kTensorThreads threads; kTensorSharedBytes of memory. Leaf l is warp l mod 8's.
template <class Gpu>
SPECDEC_DEVICE void tensor_matmul(Gpu& gpu, TensorView weight, const Inputs4* inputs, Rows y) {
  constexpr int kElements = kTensorSums / kTensorThreads;  // of a thread, when sums meet
  auto* sums = reinterpret_cast<float*>(gpu.shared());     // [warps][outputs][rows]
  const int lane = gpu.thread() % kWarp;
  const int warp = gpu.thread() / kWarp;
  const std::int64_t first_row = gpu.block_y() * kTensorRows;
  const std::int64_t tiles = (weight.outputs + kTileOutputs - 1) / kTileOutputs;
  const std::int64_t first_tile = gpu.block_x() * kTensorTiles;
  const int columns = y.rows - first_row > 8 ? 2 : 1;
  inputs += gpu.block_y() * weight.steps * kPackThreads + lane;

  TreeSum tree[kElements];
  for (std::int64_t round = 0; round < weight.leaves; round += kTensorWarps) {
    if (round + warp < weight.leaves) {
      const Leaf leaf = weight.leaf[round + warp];
      float sum[kTensorTiles][2][4] = {};
      for (std::int64_t s = leaf.first_step; s < leaf.first_step + leaf.steps; ++s) {
        Inputs4 in[2] = {};
        for (int c = 0; c < columns; ++c) {
          in[c] = inputs[s * kPackThreads + c * kWarp];
        }
        SPECDEC_UNROLL
        for (int t = 0; t < kTensorTiles; ++t) {
          // A last odd tile is worked on twice, and stored once.
          const std::int64_t tile = first_tile + t < tiles ? first_tile + t : first_tile;
          const Weights8 w = weight.weights[(tile * weight.steps + s) * kWarp + lane];
          gpu.multiply_add(sum[t][0], w.pair, in[0].pair);
          if (columns == 2) {
            gpu.multiply_add(sum[t][1], w.pair, in[1].pair);
          }
        }
      }
      SPECDEC_UNROLL
      for (int t = 0; t < kTensorTiles; ++t) {
        SPECDEC_UNROLL
        for (int c = 0; c < 2; ++c) {
          SPECDEC_UNROLL
          for (int i = 0; i < 4; ++i) {
            const std::int64_t output = t * kTileOutputs + lane / 4 + i / 2 * 8;
            const std::int64_t row = c * 8 + lane % 4 * 2 + i % 2;
            sums[warp * kTensorSums + output * kTensorRows + row] = leaf.steps == 0 ? -0.0F : sum[t][c][i];
          }
        }
      }
    }
    gpu.sync();
    for (int w = 0; w < kTensorWarps && round + w < weight.leaves; ++w) {
      const bool last = weight.leaf[round + w].last_of_slice != 0;
      SPECDEC_UNROLL
      for (int e = 0; e < kElements; ++e) {
        tree[e].add(sums[w * kTensorSums + e * kTensorThreads + gpu.thread()], last);
      }
    }
    gpu.sync();
  }
  SPECDEC_UNROLL
  for (int e = 0; e < kElements; ++e) {
    const int at = e * kTensorThreads + gpu.thread();
    const std::int64_t output = first_tile * kTileOutputs + at / kTensorRows;
    const std::int64_t row = first_row + at % kTensorRows;
    if (output < weight.outputs && row < y.rows) {
      y.row(row)[output] = tree[e].total();
    }
  }
}

}  // namespace specdec::cuda
