#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/dtype.h"

/// The one definition of the order in which ranks' (and canonical slices') partial sums are added (docs/numerics.md,
/// rule 1).
namespace specdec {

/// The fixed binary tree over `leaves` places, nearest neighbours first: calls combine(into, from) for every addition,
/// in an order that respects the tree; afterwards place 0 holds the result. 4 leaves: (d0 + d1) + (d2 + d3). A count
/// that is no power of two is the tree over the next power of two whose missing leaves are -0.0, the exact identity,
/// and so are left out: 5 leaves give ((d0 + d1) + (d2 + d3)) + d4. The left operand is always the lower place.
template <typename Combine>
constexpr void tree_fold(int leaves, Combine&& combine) {
  for (int stride = 1; stride < leaves; stride *= 2) {
    for (int into = 0; into + stride < leaves; into += 2 * stride) {
      combine(into, into + stride);
    }
  }
}

/// One addition of the tree.
constexpr float add_in_tree(float lower, float upper) { return lower + upper; }
constexpr BF16 add_in_tree(BF16 lower, BF16 upper) {
  return {float_to_bf16(bf16_to_float(lower.bits) + bf16_to_float(upper.bits))};
}

/// Most leaves of tree_sum.
inline constexpr int kMaxLeaves = 1024;

/// out[i] = tree over ranks r of leaves[r][i]. All spans have the same size; no leaf may overlap `out` unless it is the
/// same span. Allocates nothing. `soon`: as many bytes as `out` that this thread writes next, or null; their cache lines,
/// which another core may hold, are fetched for writing meanwhile.
void tree_sum(std::span<const std::span<const float>> leaves, std::span<float> out, const std::byte* soon = nullptr);
/// With every addition done in fp32 and rounded to bf16.
void tree_sum(std::span<const std::span<const BF16>> leaves, std::span<BF16> out, const std::byte* soon = nullptr);

/// What one rank does at one level of the tree: the ranks of its block of `stride` hold the block's sum and exchange it
/// with those of the sibling block. A sibling block that is cut short by the number of ranks sends to all; one that is
/// empty is skipped.
struct TreeStep {
  int source = -1;                ///< rank whose block sum this rank adds
  bool source_is_upper = true;    ///< whether it is the right operand
  std::vector<int> destinations;  ///< ranks that add this rank's block sum
};

/// The levels of tree_fold as messages (recursive doubling), for any number of ranks: after the last step every rank
/// has the tree's sum. Steps of one rank are in order; one with neither a source nor destinations does not occur.
std::vector<TreeStep> tree_steps(int rank, int ranks);

}  // namespace specdec
