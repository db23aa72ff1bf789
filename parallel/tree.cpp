#include "parallel/tree.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "backend/error.h"

namespace specdec {

namespace {

constexpr std::size_t kBlock = 16;  // elements that are summed side by side: the widest vector of floats

/// out [kBlock] = the tree over leaves[r][at ..].
template <int kLeaves, typename T>
void sum_block(std::span<const std::span<const T>> leaves, std::size_t at, T* out) {
  std::array<std::array<T, kBlock>, kLeaves> partial;
  for (int r = 0; r < kLeaves; ++r) {
    std::copy_n(leaves[r].data() + at, kBlock, partial[r].data());
  }
  tree_fold(kLeaves, [&](int into, int from) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      partial[into][i] = add_in_tree(partial[into][i], partial[from][i]);
    }
  });
  std::copy_n(partial[0].data(), kBlock, out + at);
}

/// Sums whole blocks; returns the number of elements that are done, none when there is no fast way for so many leaves.
template <typename T>
std::size_t sum_blocks(std::span<const std::span<const T>> leaves, std::span<T> out) {
  const std::size_t end = out.size() / kBlock * kBlock;
  const auto sum_all = [&]<int kLeaves>(std::integral_constant<int, kLeaves>) {
    for (std::size_t at = 0; at < end; at += kBlock) {
      sum_block<kLeaves>(leaves, at, out.data());
    }
    return end;
  };
  switch (leaves.size()) {
    case 2:
      return sum_all(std::integral_constant<int, 2>{});
    case 3:
      return sum_all(std::integral_constant<int, 3>{});
    case 4:
      return sum_all(std::integral_constant<int, 4>{});
    case 5:
      return sum_all(std::integral_constant<int, 5>{});
    case 6:
      return sum_all(std::integral_constant<int, 6>{});
    case 7:
      return sum_all(std::integral_constant<int, 7>{});
    case 8:
      return sum_all(std::integral_constant<int, 8>{});
    case 16:
      return sum_all(std::integral_constant<int, 16>{});
    default:
      return 0;
  }
}

template <typename T>
void sum_tree(std::span<const std::span<const T>> leaves, std::span<T> out) {
  std::array<T, kMaxLeaves> scratch;
  check(!leaves.empty() && leaves.size() <= scratch.size(), "tree_sum: no leaves, or too many");
  for (const std::span<const T> leaf : leaves) {
    check(leaf.size() == out.size(), "tree_sum: leaves of different sizes");
  }
  for (std::size_t i = sum_blocks(leaves, out); i < out.size(); ++i) {
    for (std::size_t r = 0; r < leaves.size(); ++r) {
      scratch[r] = leaves[r][i];
    }
    tree_fold(static_cast<int>(leaves.size()),
              [&](int into, int from) { scratch[into] = add_in_tree(scratch[into], scratch[from]); });
    out[i] = scratch[0];
  }
}

}  // namespace

void tree_sum(std::span<const std::span<const float>> leaves, std::span<float> out) { sum_tree(leaves, out); }

void tree_sum(std::span<const std::span<const BF16>> leaves, std::span<BF16> out) { sum_tree(leaves, out); }

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
