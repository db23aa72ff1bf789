#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/device.h"
#include "backend/cuda/kernels/tensor_ring.h"
#include "backend/cuda/kernels/tensor_shape.h"
#include "backend/cuda/tensor_layout.h"
#include "backend/dtype.h"
#include "backend/elementary.h"
#include "backend/tensor.h"

/// Products on tensor cores: up to 64 rows at a time, each weight read once for all of them.
namespace specdec::cuda {

/// Inputs as the B operand takes them, rounded to the type of the weights: for slices that are no multiples of 16 long, and for many rows. One block of
/// one warp for each step (x), column of 8 rows and block of `columns` of them (y).
template <class Gpu, DType kType>
SPECDEC_DEVICE void pack_inputs(Gpu& gpu, TensorView weight, ConstRows x, std::int32_t columns, Inputs4* packed) {
  const Step step = weight.step[gpu.block_x()];
  const int lane = gpu.thread();
  const std::int64_t row = gpu.block_y() * 8 + lane / 4;
  Inputs4 inputs;
  for (int word = 0; word < 2; ++word) {
    float pair[2];
    for (int i = 0; i < 2; ++i) {
      const int input = lane % 4 * 4 + word * 2 + i;
      pair[i] = row < x.rows && input < step.inputs ? x.row(row)[step.first_input + input] : 0.0F;
    }
    inputs.pair[word] = gpu.template round_pair<kType>(pair[0], pair[1]);
  }
  const std::int64_t block = gpu.block_y() / columns;
  packed[((block * weight.steps + gpu.block_x()) * columns + gpu.block_y() % columns) * kWarp + lane] = inputs;
}

/// A lane's share of the sums of a part's leaves, added up in the tree's order.
template <class Gpu, TensorShape kShape>
class PartSums {
 public:
  /// `stack`: the lane's first place in the warp's memory for sums that wait.
  SPECDEC_DEVICE PartSums(const Leaf* leaf, int leaves, float* stack) : leaf_(leaf), leaves_(leaves), stack_(stack) {
    begin();
  }

  SPECDEC_DEVICE void step(Gpu& gpu, const Operands<kShape>& in) {
    SPECDEC_UNROLL
    for (int t = 0; t < kShape.tiles; ++t) {
      SPECDEC_UNROLL
      for (int c = 0; c < kShape.columns; ++c) {
        if constexpr (kShape.vector) {
          multiply_add(sum_[t][c], in.weights[t], in.inputs[c]);
        } else {
          gpu.template multiply_add<kShape.type>(sum_[t][c], in.weights[t], in.inputs[c]);
        }
      }
    }
    if (--left_ == 0) {
      end();
      begin();
    }
  }

  /// [4 tiles columns] of the lane, kWarp apart.
  SPECDEC_DEVICE void store(float* to) const {
    each([&](int i, const float& sum) { to[i * kWarp] = sum; });
  }

 private:
  SPECDEC_DEVICE void begin() {
    while (leaves_ > 0) {
      left_ = leaf_->steps;
      const float zero = left_ == 0 ? -0.0F : 0.0F;
      each([&](int, float& sum) { sum = zero; });
      if (left_ > 0) {
        return;
      }
      end();
    }
  }
  SPECDEC_DEVICE void end() {
    for (int merge = leaf_->merges; merge > 0; --merge) {
      stack_ -= kShape.sums();
      each([&](int i, float& sum) { sum = stack_[i * kWarp] + sum; });
    }
    ++leaf_;
    if (--leaves_ > 0) {
      each([&](int i, const float& sum) { stack_[i * kWarp] = sum; });
      stack_ += kShape.sums();
    }
  }

  /// Two outputs of four inputs of one row: the even and the odd inputs' sums of each output.
  SPECDEC_DEVICE static void multiply_add(float (&sum)[4], const std::uint32_t (&weights)[4],
                                          const std::uint32_t (&inputs)[2]) {
    SPECDEC_UNROLL
    for (int i = 0; i < 8; ++i) {
      float& to = sum[i / 2 % 2 * 2 + i % 2];
      to = elementary::fused(widened(weights[i / 2], i % 2), widened(inputs[i / 4], i % 2), to);
    }
  }
  SPECDEC_DEVICE static float widened(std::uint32_t pair, int upper) {
    if constexpr (kShape.type == DType::kF16) {
      return f16_to_float(static_cast<std::uint16_t>(pair >> (16 * upper)));
    }
    return std::bit_cast<float>(upper == 1 ? pair & 0xffff0000U : pair << 16);
  }

  template <typename Do>
  SPECDEC_DEVICE void each(const Do& act) {
    SPECDEC_UNROLL
    for (int i = 0; i < kShape.sums() / kWarp; ++i) {
      act(i, sum_[i / 4 / kShape.columns][i / 4 % kShape.columns][i % 4]);
    }
  }
  template <typename Do>
  SPECDEC_DEVICE void each(const Do& act) const {
    SPECDEC_UNROLL
    for (int i = 0; i < kShape.sums() / kWarp; ++i) {
      act(i, sum_[i / 4 / kShape.columns][i / 4 % kShape.columns][i % 4]);
    }
  }

  float sum_[kShape.tiles][kShape.columns][4];
  const Leaf* leaf_;
  int leaves_;
  int left_ = 0;  // steps of the leaf
  float* stack_;
};

/// The sums of a warp: its part of the inputs, for all outputs and rows of the block. `memory`: the warp's.
template <class Gpu, TensorShape kShape>
SPECDEC_DEVICE void add_part(Gpu& gpu, const OperandSource<kShape>& from, const Part& part, const Leaf* leaf,
                             std::byte* memory, float* stack, int lane) {
  using Ring = std::conditional_t<kShape.shared, SharedRing<Gpu, kShape>, RegisterRing<Gpu, kShape>>;
  // Registers have no address: their slots are numbered when this is compiled.
  [[maybe_unused]] constexpr int kUnrolled = kShape.shared ? 1 : kShape.depth;
  Ring ring(memory, lane);
  SPECDEC_UNROLL_BY(kUnrolled)
  for (int slot = 0; slot < kShape.depth; ++slot) {
    if (slot < part.steps) {
      ring.fill_weights(gpu, slot, from, part.first_step + slot);
    }
  }
  // Weights never change: the first of them are on their way before the kernel before this one has made the inputs.
  gpu.wait_for_previous();
  SPECDEC_UNROLL_BY(kUnrolled)
  for (int slot = 0; slot < kShape.depth; ++slot) {
    if (slot < part.steps) {
      ring.fill_inputs(gpu, slot, from, part.first_step + slot);
    }
    ring.filled(gpu);
  }
  PartSums<Gpu, kShape> sums(leaf + part.first_leaf, part.leaves, stack + lane);
  for (int first = 0; first < part.steps; first += kShape.depth) {
    SPECDEC_UNROLL_BY(kUnrolled)
    for (int slot = 0; slot < kShape.depth; ++slot) {
      const int at = first + slot;
      if (at < part.steps) {
        Operands<kShape> operands;
        ring.take(gpu, slot, operands);
        sums.step(gpu, operands);
        if (at + kShape.depth < part.steps) {
          ring.fill_weights(gpu, slot, from, part.first_step + at + kShape.depth);
          ring.fill_inputs(gpu, slot, from, part.first_step + at + kShape.depth);
        }
        ring.filled(gpu);
      }
    }
  }
  gpu.sync_warp();  // sums go where other lanes' loads were
  sums.store(reinterpret_cast<float*>(memory) + lane);
}

/// Whose the i-th of a block's sums is: they lie as the lanes' registers of m16n8k16 do.
template <TensorShape kShape>
struct SumPlaces {
  std::int64_t first_row;
  std::int64_t first_tile;

  SPECDEC_DEVICE std::int64_t row(int i) const {
    return first_row + i / (kWarp * 4) % kShape.columns * 8 + i % 4 * 2 + i / kWarp % 2;
  }
  SPECDEC_DEVICE std::int64_t output(const TileOutputs& of, int i) const {
    return of.at(first_tile + i / (kWarp * 4) / kShape.columns, i % kWarp / 4 + i / kUpper % 2 * 8);
  }
  /// From a sum to that of the output eight places below in its tile.
  static constexpr int kUpper = kWarp * 2;
};

/// silu(gate) * what it gates, of the block's `sums`.
template <class Gpu, TensorShape kShape>
SPECDEC_DEVICE void store_activated(Gpu& gpu, const TileOutputs& outputs, const SumPlaces<kShape>& places,
                                    const float* sums, const TensorOutputs& out) {
  constexpr int kUpper = SumPlaces<kShape>::kUpper;
  for (int pair = gpu.thread(); pair < kShape.sums() / 2; pair += kShape.threads()) {
    const int i = pair / kUpper * 2 * kUpper + pair % kUpper;
    const std::int64_t row = places.row(i);
    const std::int64_t output = places.output(outputs, i);
    if (output < outputs.count && row < out.rows.rows) {
      float gate = sums[i];
      float gated = sums[i + kUpper];
      if (out.bias != nullptr) {
        gate = out.bias[output] + gate;
        gated = out.bias[output + outputs.count / 2] + gated;
      }
      out.rows.row(row)[output] = elementary::silu(gate) * gated;
    }
  }
}

/// `sums` of a shape that is `vector`: a row's are four lanes' of two each.
template <class Gpu, TensorShape kShape>
SPECDEC_DEVICE void store_lanes(Gpu& gpu, const TileOutputs& outputs, const SumPlaces<kShape>& places,
                                const float* sums, Rows y) {
  for (int i = gpu.thread(); i < kShape.outputs() * kShape.columns; i += kShape.threads()) {
    const int of_tile = i % static_cast<int>(kTileOutputs);
    const int column = i / static_cast<int>(kTileOutputs) % kShape.columns;
    const int tile = i / static_cast<int>(kTileOutputs) / kShape.columns;
    const float* const lanes =
        sums + ((tile * kShape.columns + column) * 4 + of_tile / 8 * 2) * kWarp + of_tile % 8 * 4;
    float sum = 0;
    SPECDEC_UNROLL
    for (int lane = 0; lane < 4; ++lane) {
      sum = sum + (lanes[lane] + lanes[kWarp + lane]);
    }
    const std::int64_t output = outputs.at(places.first_tile + tile, of_tile);
    if (output < outputs.count && places.first_row + column < y.rows) {
      y.row(places.first_row + column)[output] = sum;
    }
  }
}

template <class Gpu>
SPECDEC_DEVICE void ask_for(Gpu& gpu, const WeightsAhead& ahead) {
  const std::int64_t first = gpu.block_y() * ahead.share;
  const std::int64_t last = first + ahead.share < ahead.bytes ? first + ahead.share : ahead.bytes;
  for (std::int64_t at = first + gpu.thread() * WeightsAhead::kAtOnce; at < last;
       at += gpu.threads() * WeightsAhead::kAtOnce) {
    gpu.prefetch(ahead.from + at, last - at < WeightsAhead::kAtOnce ? last - at : WeightsAhead::kAtOnce);
  }
}

/// out = x w^T. Blocks: kShape.rows() rows (x), kShape.tiles tiles of outputs (y), kShape.threads() threads; kShape.shared_bytes() of memory for the stack of
/// the layout's cut. Part p of the sums is warp p's.
template <class Gpu, TensorShape kShape>
SPECDEC_DEVICE void tensor_matmul(Gpu& gpu, TensorView weight, TensorInputs in, TensorOutputs out) {
  const int lane = gpu.thread() % kWarp;
  const int warp = gpu.thread() / kWarp;
  const SumPlaces<kShape> places{gpu.block_x() * kShape.rows(), gpu.block_y() * kShape.tiles};
  const auto sums_of = [&](int part) { return reinterpret_cast<float*>(gpu.shared() + part * kShape.warp_bytes()); };
  if (warp < weight.parts) {
    auto* const stacks = reinterpret_cast<float*>(gpu.shared() + kShape.warps * kShape.warp_bytes());
    const OperandSource<kShape> from(weight, in, places.first_row, places.first_tile, lane);
    add_part<Gpu, kShape>(gpu, from, weight.part[warp], weight.leaf, gpu.shared() + warp * kShape.warp_bytes(),
                          stacks + warp * weight.stack * kShape.sums(), lane);
  } else {
    gpu.wait_for_previous();
  }
  gpu.sync();
  for (int i = gpu.thread(); i < kShape.sums(); i += kShape.threads()) {
    int waiting = 0;
    for (int part = 0; part < weight.parts; ++part) {
      float sum = sums_of(part)[i];
      for (int merge = weight.part[part].merges; merge > 0; --merge) {
        sum = sums_of(--waiting)[i] + sum;
      }
      // No more sums wait than parts have been read: their places are free.
      sums_of(waiting++)[i] = sum;
    }
    if constexpr (!kShape.vector) {
      const std::int64_t output = places.output(weight.outputs, i);
      if (!out.activated && output < weight.outputs.count && places.row(i) < out.rows.rows) {
        out.rows.row(places.row(i))[output] = sums_of(0)[i];
      }
    }
  }
  if constexpr (kShape.vector) {
    gpu.sync();
    store_lanes(gpu, weight.outputs, places, sums_of(0), out.rows);
  } else if (out.activated) {
    gpu.sync();
    store_activated(gpu, weight.outputs, places, sums_of(0), out);
  }
  if (gpu.block_x() == 0) {
    ask_for(gpu, out.ahead);
  }
}

}  // namespace specdec::cuda
