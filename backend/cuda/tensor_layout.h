#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace specdec::cuda {

/// Outputs and inputs of one tile of weights, as mma.sync.m16n8k16 takes its A operand.
inline constexpr std::int64_t kTileOutputs = 16;
inline constexpr std::int64_t kTileInputs = 16;

/// Which output lies where in the tiles: in order; or, of gates and as many outputs that they gate, eight of the former and below them
/// theirs, so that the sums of a pair meet in one block.
struct TileOutputs {
  std::int64_t count = 0;
  bool gated = false;

  constexpr std::int64_t tiles() const {
    return gated ? (count / 2 + kTileOutputs / 2 - 1) / (kTileOutputs / 2) : (count + kTileOutputs - 1) / kTileOutputs;
  }
  /// Not less than `count`: there is none.
  constexpr std::int64_t at(std::int64_t tile, std::int64_t place) const {
    if (!gated) {
      return tile * kTileOutputs + place;
    }
    const std::int64_t pair = tile * (kTileOutputs / 2) + place % (kTileOutputs / 2);
    return pair < count / 2 ? pair + place / (kTileOutputs / 2) * (count / 2) : count;
  }
};

/// A chain of products down some inputs, added from zero by one warp; `merges` additions of the two latest sums end with it (SumTree).
struct Leaf {
  std::int32_t steps = 0;  ///< 0: an empty slice, which counts as -0.0
  std::int32_t merges = 0;
};

/// A subtree of sums, which one warp of a block adds up; the blocks' warps' sums meet as `merges` says.
struct Part {
  std::int32_t first_step = 0;
  std::int32_t steps = 0;
  std::int32_t first_leaf = 0;
  std::int32_t leaves = 0;
  std::int32_t merges = 0;
};

/// Up to 16 neighbouring inputs of one slice, padded with zeros to 16.
struct Step {
  std::int32_t first_input = 0;
  std::int32_t inputs = 0;
};

/// The order of additions, cut into parts for the warps of a block: how it is cut is no part of the order.
struct TensorCut {
  std::vector<Part> parts;
  std::vector<Leaf> leaves;
  int stack = 0;  ///< sums of leaves that a warp keeps at once
};

/// In which order the products of a matrix are added on tensor cores.
///
/// Each slice is cut into a power of two of leaves of at most kLeafSteps steps where kMaxLeaves suffice, by its own length alone; leaves meet in a binary
/// tree within their slice, and slices in the canonical one. So the order depends on neither the number of rows nor that of ranks, and still eight or
/// sixteen warps share one tile.
class TensorOrder {
 public:
  static constexpr std::int64_t kLeafSteps = 16;
  static constexpr std::int64_t kMaxLeaves = 32;  ///< of a slice

  /// The slices of LinearSpec.
  explicit TensorOrder(const std::vector<Range>& slices);

  std::int64_t inputs() const { return inputs_; }
  const std::vector<Step>& steps() const { return steps_; }
  /// Whether all slices are multiples of 16 long: then step s is the inputs [16 s, 16 s + 16).
  bool even() const { return even_; }
  /// For each slice the steps of its leaves.
  const std::vector<std::vector<std::int64_t>>& slices() const { return slices_; }
  TensorCut cut(int warps) const;

 private:
  std::int64_t inputs_ = 0;
  bool even_ = true;
  std::vector<Step> steps_;
  std::vector<std::vector<std::int64_t>> slices_;
};

/// How a matrix of bf16 or fp16 is laid out for tensor cores: made on the host, once.
class TensorLayout {
 public:
  /// With Contents::kNone weights() is empty.
  explicit TensorLayout(const LinearSpec& spec, Contents contents = Contents::kPacked);

  const TensorOrder& order() const { return order_; }
  const TileOutputs& outputs() const { return outputs_; }
  std::size_t bytes() const {
    return outputs_.tiles() * order_.steps().size() * kTileOutputs * kTileInputs * sizeof(std::uint16_t);
  }
  /// [tiles][steps][32 lanes][8] bf16 or fp16: a lane's eight weights of a step are one load of 16 bytes. Outputs and inputs that there are not are zero.
  const std::vector<std::uint16_t>& weights() const { return weights_; }

 private:
  void fill(const LinearSpec& spec);

  TensorOrder order_;
  TileOutputs outputs_;
  std::vector<std::uint16_t> weights_;
};

}  // namespace specdec::cuda
