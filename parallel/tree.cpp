#include "parallel/tree.h"

#include <algorithm>

#include "backend/error.h"

namespace specdec {

void tree_sum(std::span<const std::span<const float>> leaves, std::span<float> out) {
  check(!leaves.empty(), "tree_sum: no leaves");
  std::vector<std::vector<float>> partial;
  partial.reserve(leaves.size());
  for (const std::span<const float> leaf : leaves) {
    check(leaf.size() == out.size(), "tree_sum: leaves of different sizes");
    partial.emplace_back(leaf.begin(), leaf.end());
  }
  tree_fold(static_cast<int>(leaves.size()), [&](int into, int from) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      partial[into][i] += partial[from][i];
    }
  });
  std::copy(partial[0].begin(), partial[0].end(), out.begin());
}

std::vector<TreeStep> tree_steps(int rank, int ranks) {
  std::vector<TreeStep> steps;
  for (int stride = 1; stride < ranks; stride *= 2) {
    const int mine = rank / stride * stride;
    const int sibling = mine ^ stride;
    const int my_size = std::min(stride, ranks - mine);
    const int sibling_size = std::min(stride, ranks - sibling);
    if (sibling_size <= 0) {
      continue;
    }
    // Only the upper block can be short. Its j-th rank serves the lower ranks j, j + size, j + 2 size, ...
    const int offset = rank - mine;
    TreeStep step{.source = sibling + offset % sibling_size, .source_is_upper = sibling > mine, .destinations = {}};
    for (int other = offset; other < sibling_size; other += my_size) {
      step.destinations.push_back(sibling + other);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace specdec
