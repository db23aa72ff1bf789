#include "backend/cuda/sum_tree.h"

#include <algorithm>
#include <cstddef>

#include "backend/error.h"

namespace specdec::cuda {

SumTree::SumTree(std::span<const int> leaves_of_slice) {
  std::vector<int> slices;
  for (const int count : leaves_of_slice) {
    std::vector<int> level;
    for (int i = 0; i < count; ++i) {
      level.push_back(static_cast<int>(nodes_.size()));
      nodes_.push_back({.first = leaves_++, .leaves = 1});
    }
    slices.push_back(meet(std::move(level)));
  }
  root_ = meet(std::move(slices));
}

int SumTree::meet(std::vector<int> level) {
  check(!level.empty(), "a sum has at least one term");
  while (level.size() > 1) {
    std::vector<int> above;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
      const int left = level[i];
      const int right = level[i + 1];
      above.push_back(static_cast<int>(nodes_.size()));
      nodes_.push_back({nodes_[left].first, nodes_[left].leaves + nodes_[right].leaves, left, right});
    }
    if (level.size() % 2 == 1) {
      above.push_back(level.back());
    }
    level = std::move(above);
  }
  return level.front();
}

template <typename IsEnd>
void SumTree::walk(int node, const IsEnd& is_end, std::vector<Part>& out) const {
  const Node& at = nodes_[node];
  if (at.left < 0 || is_end(node)) {
    out.push_back({at.first, at.leaves, 0});
    return;
  }
  walk(at.left, is_end, out);
  walk(at.right, is_end, out);
  ++out.back().merges;
}

int SumTree::find(const Part& part) const {
  int node = root_;
  while (nodes_[node].leaves != part.leaves || nodes_[node].first != part.first) {
    check(nodes_[node].left >= 0, "a part is a subtree");
    node = part.first < nodes_[nodes_[node].right].first ? nodes_[node].left : nodes_[node].right;
  }
  return node;
}

std::vector<SumTree::Part> SumTree::cut(int parts, std::span<const std::int64_t> cost) const {
  const auto cost_of = [&](int node) {
    std::int64_t sum = 0;
    for (int i = 0; i < nodes_[node].leaves; ++i) {
      sum += cost[nodes_[node].first + i];
    }
    return sum;
  };
  std::vector<int> ends = {root_};
  while (static_cast<int>(ends.size()) < parts) {
    int most = -1;
    for (const int node : ends) {
      if (nodes_[node].left >= 0 && (most < 0 || cost_of(node) > cost_of(most))) {
        most = node;
      }
    }
    if (most < 0) {
      break;
    }
    std::erase(ends, most);
    ends.push_back(nodes_[most].left);
    ends.push_back(nodes_[most].right);
  }
  std::vector<Part> out;
  walk(
      root_, [&](int node) { return std::ranges::find(ends, node) != ends.end(); }, out);
  return out;
}

std::vector<int> SumTree::merges_within(const Part& part) const {
  std::vector<Part> leaves;
  walk(
      find(part), [](int) { return false; }, leaves);
  std::vector<int> merges(leaves.size());
  std::ranges::transform(leaves, merges.begin(), &Part::merges);
  return merges;
}

int stack_depth(std::span<const int> merges) {
  int depth = 0;
  int deepest = 0;
  for (std::size_t i = 0; i + 1 < merges.size(); ++i) {
    depth += 1 - merges[i];
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

}  // namespace specdec::cuda
