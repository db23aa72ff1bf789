#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace specdec::cuda {

/// A binary tree over leaves in order: in which order sums are added that several workers find. Written in postfix form, as how many additions of the
/// two latest sums end with a leaf, so that whoever has the leaves in order needs a stack and no tree.
class SumTree {
 public:
  /// Leaves [first, first + leaves), a whole subtree; `merges` additions end with it among the parts of its cut.
  struct Part {
    int first = 0;
    int leaves = 0;
    int merges = 0;
  };

  /// Leaves of a slice, a power of two of them, meet neighbours first; so do slices then, where one without a neighbour goes up as it is.
  explicit SumTree(std::span<const int> leaves_of_slice);

  int leaves() const { return leaves_; }
  /// At most `parts` subtrees that cover the tree in order; whichever costs most is cut while there may be more. cost [leaves].
  std::vector<Part> cut(int parts, std::span<const std::int64_t> cost) const;
  /// merges [leaves] of `part`: additions that end with each of its leaves and stay within it.
  std::vector<int> merges_within(const Part& part) const;

 private:
  struct Node {
    int first = 0;
    int leaves = 0;
    int left = -1;  ///< -1 with right: a leaf
    int right = -1;
  };

  int meet(std::vector<int> level);
  /// Ends of `node`'s descendants that `is_end` names, in order, with the additions that end with each.
  template <typename IsEnd>
  void walk(int node, const IsEnd& is_end, std::vector<Part>& out) const;
  int find(const Part& part) const;

  std::vector<Node> nodes_;
  int root_ = 0;
  int leaves_ = 0;
};

/// Sums that wait at once where leaves with these `merges` come in order.
int stack_depth(std::span<const int> merges);

}  // namespace specdec::cuda
