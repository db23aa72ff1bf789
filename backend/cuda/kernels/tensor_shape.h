#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/cuda/tensor_layout.h"
#include "backend/dtype.h"
#include "backend/tensor.h"

namespace specdec::cuda {

/// What a lane loads at once.
struct alignas(16) Weights8 {
  std::uint32_t pair[4];
};
struct alignas(8) Inputs4 {
  std::uint32_t pair[2];
};

inline constexpr int kMaxParts = 16;

/// A TensorLayout on the device, cut for the warps of a block. Parts come with the launch, so that a warp knows its weights before it has read anything.
struct TensorView {
  const Weights8* weights = nullptr;  ///< [tiles][steps][32]
  const Step* step = nullptr;         ///< [steps], for pack_inputs
  const Leaf* leaf = nullptr;         ///< [leaves]
  std::int64_t steps = 0;
  TileOutputs outputs;
  std::int32_t parts = 0;
  std::int32_t stack = 0;  ///< TensorCut::stack
  Part part[kMaxParts];
};

/// Inputs of a product: rows as they are, where the layout is even() and rows start at multiples of 16 bytes; or as pack_inputs leaves them,
/// [blocks of rows][steps][columns][32 lanes].
struct TensorInputs {
  static constexpr bool kAwaitedByKernel = true;  ///< weights are asked for first

  ConstRows rows;
  const Inputs4* packed = nullptr;
};

/// Weights that come after those of a product: each row of its blocks (y) asks for `share` bytes of them when it is done. Multiples of 16.
struct WeightsAhead {
  static constexpr std::int64_t kAtOnce = 2048;  ///< of a thread

  const std::byte* from = nullptr;
  std::int64_t bytes = 0;
  std::int64_t share = 0;
};

/// Where a product goes, and what is next.
struct TensorOutputs {
  Rows rows;
  /// Of outputs that are `gated`: rows [rows, count / 2] = silu(gate) * what it gates, `bias` [count] (null for none) having been added to both.
  bool activated = false;
  const float* bias = nullptr;
  WeightsAhead ahead;
};

/// How the kernel of tensor_matmul_kernel.h works; none of it but `vector` changes a bit of what comes out. Which is fastest is measured (tests/gpu/product_bench.cpp).
struct TensorShape {
  DType type = DType::kBF16;
  int warps = 8;        ///< of a block, at most kMaxParts: they share the inputs of its outputs
  int tiles = 1;        ///< of 16 outputs, side by side in a warp, so that inputs are read for all of them
  int columns = 1;      ///< of 8 rows, or of one where `vector`
  int depth = 8;        ///< steps that a warp has asked for before it needs them
  bool shared = true;   ///< they go to the block's memory, past registers; else to registers
  bool packed = false;  ///< inputs come packed
  /// Multiply-adds of the vector units, for a row or a few: lanes, not leaves, are what is added last. The one shape with bits of its own.
  bool vector = false;

  constexpr int threads() const { return warps * kWarp; }
  constexpr std::int64_t outputs() const { return tiles * kTileOutputs; }  ///< of a block
  constexpr std::int64_t rows() const { return columns * std::int64_t{vector ? 1 : 8}; }
  /// Of a block, for all its outputs and rows.
  constexpr int sums() const { return tiles * columns * 4 * kWarp; }
  constexpr int input_bytes() const { return packed ? 8 : 16; }  ///< of a lane, a step and a column
  constexpr int slot_bytes() const { return kWarp * (tiles * 16 + columns * input_bytes()); }
  /// A warp's memory for loads and later its sums, and that for the sums that wait.
  constexpr int warp_bytes() const {
    return std::max(shared ? depth * slot_bytes() : 0, sums() * static_cast<int>(sizeof(float)));
  }
  constexpr std::size_t shared_bytes(int stack) const {
    return std::size_t{1} * warps * (warp_bytes() + stack * sums() * sizeof(float));
  }
};

}  // namespace specdec::cuda
