#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/tensor_shape.h"

/// The loads of tensor_matmul_kernel.h: `depth` steps of weights and inputs under way, each lane its own, so that no lane waits for another.
namespace specdec::cuda {

/// What a lane needs for a step.
template <TensorShape kShape>
struct Operands {
  std::uint32_t weights[kShape.tiles][4];
  std::uint32_t inputs[kShape.columns][2];
};

/// Where a lane's operands lie in global memory.
template <TensorShape kShape>
struct OperandSource {
  const std::byte* weights[kShape.tiles];
  const std::byte* inputs[kShape.columns];
  bool is_row[kShape.columns];  ///< else inputs are zero, and not read

  static constexpr std::int64_t kWeightBytes = std::int64_t{kWarp} * 16;  // from step to step
  static constexpr std::int64_t kInputBytes =
      kShape.packed ? std::int64_t{kShape.columns} * kWarp * 8 : kTileInputs * std::int64_t{4};

  SPECDEC_DEVICE OperandSource(const TensorView& weight, const TensorInputs& in, std::int64_t first_row,
                               std::int64_t first_tile, int lane) {
    const std::int64_t tiles = weight.outputs.tiles();
    SPECDEC_UNROLL
    for (int t = 0; t < kShape.tiles; ++t) {
      // A last odd tile is worked on twice, and stored once.
      const std::int64_t tile = first_tile + t < tiles ? first_tile + t : first_tile;
      weights[t] = reinterpret_cast<const std::byte*>(weight.weights + tile * weight.steps * kWarp + lane);
    }
    SPECDEC_UNROLL
    for (int c = 0; c < kShape.columns; ++c) {
      if constexpr (kShape.packed) {
        const std::int64_t block = first_row / kShape.rows();
        inputs[c] =
            reinterpret_cast<const std::byte*>(in.packed + (block * weight.steps * kShape.columns + c) * kWarp + lane);
        is_row[c] = true;
      } else {
        const std::int64_t row = first_row + (kShape.vector ? c : c * 8 + lane / 4);
        is_row[c] = row < in.rows.rows;
        inputs[c] = reinterpret_cast<const std::byte*>(in.rows.row(is_row[c] ? row : first_row) + lane % 4 * 4);
      }
    }
  }
};

template <TensorShape kShape, class Gpu>
SPECDEC_DEVICE void round_inputs(Gpu& gpu, const std::uint32_t (&raw)[4], std::uint32_t (&to)[2]) {
  to[0] = gpu.template round_pair<kShape.type>(std::bit_cast<float>(raw[0]), std::bit_cast<float>(raw[1]));
  to[1] = gpu.template round_pair<kShape.type>(std::bit_cast<float>(raw[2]), std::bit_cast<float>(raw[3]));
}

/// In the block's memory, by asynchronous copies. A lane reads only what it copied itself: waiting for its own copies is enough.
template <class Gpu, TensorShape kShape>
class SharedRing {
 public:
  SPECDEC_DEVICE SharedRing(std::byte* memory, int lane) : memory_(memory), lane_(lane) {}

  SPECDEC_DEVICE void fill_weights(Gpu& gpu, int slot, const OperandSource<kShape>& from, std::int64_t step) {
    std::byte* const to = memory_ + slot * kShape.slot_bytes();
    SPECDEC_UNROLL
    for (int t = 0; t < kShape.tiles; ++t) {
      gpu.copy_once(to + (t * kWarp + lane_) * 16, from.weights[t] + step * OperandSource<kShape>::kWeightBytes);
    }
  }
  SPECDEC_DEVICE void fill_inputs(Gpu& gpu, int slot, const OperandSource<kShape>& from, std::int64_t step) {
    std::byte* const to = memory_ + slot * kShape.slot_bytes();
    SPECDEC_UNROLL
    for (int c = 0; c < kShape.columns; ++c) {
      gpu.template copy_or_zero<kShape.input_bytes()>(
          inputs(to, c), from.inputs[c] + step * OperandSource<kShape>::kInputBytes, from.is_row[c]);
    }
  }
  /// After the inputs of each slot, and where there is nothing for it.
  SPECDEC_DEVICE void filled(Gpu& gpu) { gpu.end_of_copies(); }

  SPECDEC_DEVICE void take(Gpu& gpu, int slot, Operands<kShape>& out) {
    gpu.template await_copies<kShape.depth - 1>();
    const std::byte* const from = memory_ + slot * kShape.slot_bytes();
    SPECDEC_UNROLL
    for (int t = 0; t < kShape.tiles; ++t) {
      const Weights8 w = *reinterpret_cast<const Weights8*>(from + (t * kWarp + lane_) * 16);
      for (int i = 0; i < 4; ++i) {
        out.weights[t][i] = w.pair[i];
      }
    }
    SPECDEC_UNROLL
    for (int c = 0; c < kShape.columns; ++c) {
      if constexpr (kShape.packed) {
        const Inputs4 in = *reinterpret_cast<const Inputs4*>(inputs(from, c));
        out.inputs[c][0] = in.pair[0];
        out.inputs[c][1] = in.pair[1];
      } else {
        const Weights8 raw = *reinterpret_cast<const Weights8*>(inputs(from, c));
        round_inputs<kShape>(gpu, raw.pair, out.inputs[c]);
      }
    }
  }

 private:
  template <typename Byte>
  SPECDEC_DEVICE Byte* inputs(Byte* slot, int column) const {
    return slot + kShape.tiles * kWarp * 16 + (column * kWarp + lane_) * kShape.input_bytes();
  }

  std::byte* memory_;
  int lane_;
};

/// In registers, by plain loads.
template <class Gpu, TensorShape kShape>
class RegisterRing {
 public:
  SPECDEC_DEVICE RegisterRing(std::byte*, int) {}

  SPECDEC_DEVICE void fill_weights(Gpu& gpu, int slot, const OperandSource<kShape>& from, std::int64_t step) {
    SPECDEC_UNROLL
    for (int t = 0; t < kShape.tiles; ++t) {
      gpu.load_weights(slots_[slot].weights[t], from.weights[t] + step * OperandSource<kShape>::kWeightBytes);
    }
  }
  SPECDEC_DEVICE void fill_inputs(Gpu&, int slot, const OperandSource<kShape>& from, std::int64_t step) {
    SPECDEC_UNROLL
    for (int c = 0; c < kShape.columns; ++c) {
      auto& to = slots_[slot].inputs[c];
      const std::byte* const at = from.inputs[c] + step * OperandSource<kShape>::kInputBytes;
      if constexpr (kShape.packed) {
        const Inputs4 in = *reinterpret_cast<const Inputs4*>(at);
        to[0] = in.pair[0];
        to[1] = in.pair[1];
      } else {
        const Weights8 in = from.is_row[c] ? *reinterpret_cast<const Weights8*>(at) : Weights8{};
        for (int i = 0; i < 4; ++i) {
          to[i] = in.pair[i];
        }
      }
    }
  }
  SPECDEC_DEVICE void filled(Gpu&) {}

  SPECDEC_DEVICE void take(Gpu& gpu, int slot, Operands<kShape>& out) {
    SPECDEC_UNROLL
    for (int t = 0; t < kShape.tiles; ++t) {
      for (int i = 0; i < 4; ++i) {
        out.weights[t][i] = slots_[slot].weights[t][i];
      }
    }
    SPECDEC_UNROLL
    for (int c = 0; c < kShape.columns; ++c) {
      if constexpr (kShape.packed) {
        out.inputs[c][0] = slots_[slot].inputs[c][0];
        out.inputs[c][1] = slots_[slot].inputs[c][1];
      } else {
        round_inputs<kShape>(gpu, slots_[slot].inputs[c], out.inputs[c]);
      }
    }
  }

 private:
  struct Slot {
    std::uint32_t weights[kShape.tiles][4];
    std::uint32_t inputs[kShape.columns][kShape.packed ? 2 : 4];
  };
  Slot slots_[kShape.depth];
};

}  // namespace specdec::cuda
