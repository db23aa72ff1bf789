#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace specdec::cuda {

/// Outputs and inputs of one tile of weights, as mma.sync.m16n8k16 takes its A operand.
inline constexpr std::int64_t kTileOutputs = 16;
inline constexpr std::int64_t kTileInputs = 16;

/// A chain of products down some inputs, added from zero by one warp.
struct Leaf {
  std::int32_t first_step = 0;
  std::int32_t steps = 0;  ///< 0: an empty slice, which counts as -0.0
  std::int32_t last_of_slice = 0;
};

/// Up to 16 neighbouring inputs of one slice, padded with zeros to 16.
struct Step {
  std::int32_t first_input = 0;
  std::int32_t inputs = 0;
};

/// How a bf16 matrix is laid out for tensor cores, and in which order its products are added: made on the host, once.
///
/// Each slice is cut into a power of two of leaves of at most kLeafSteps steps where 16 leaves suffice, by its own length alone; leaves meet in a binary
/// tree within their slice, and slices in the canonical one. So the order depends on neither the number of rows nor that of ranks, and still eight
/// warps share one tile.
class TensorLayout {
 public:
  static constexpr std::int64_t kLeafSteps = 32;
  static constexpr std::int64_t kMaxLeaves = 16;  ///< of a slice

  /// With Contents::kNone weights() is empty.
  explicit TensorLayout(const LinearSpec& spec, Contents contents = Contents::kPacked);

  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  std::size_t bytes() const { return tiles() * steps_.size() * kTileOutputs * kTileInputs * sizeof(std::uint16_t); }
  std::int64_t tiles() const { return (outputs_ + kTileOutputs - 1) / kTileOutputs; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  /// [tiles][steps][32 lanes][8] bf16: a lane's eight weights of a step are one load of 16 bytes. Outputs and inputs that there are not are zero.
  const std::vector<std::uint16_t>& weights() const { return weights_; }

 private:
  void cut(const std::vector<Range>& slices);
  void fill(const LinearSpec& spec);

  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
  std::vector<Step> steps_;
  std::vector<Leaf> leaves_;
  std::vector<std::uint16_t> weights_;
};

}  // namespace specdec::cuda
