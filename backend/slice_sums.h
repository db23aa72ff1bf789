#pragma once

#include <algorithm>

#include "backend/backend.h"
#include "backend/elementary.h"

/// How the statistics of vocabulary slices become those of a row, on the host and in kernels.
namespace specdec {

/// Statistics of two neighbouring runs of slices. An empty run leaves the other one's bits alone.
constexpr SliceSum combine(const SliceSum& a, const SliceSum& b) {
  if (a.sum == 0.0F || b.sum == 0.0F) {
    return a.sum == 0.0F ? b : a;
  }
  const float max = std::max(a.max, b.max);
  return {max, a.sum * elementary::exp(a.max - max) + b.sum * elementary::exp(b.max - max)};
}

/// The fixed binary tree over `count` >= 1 slices, neighbours first. `slices` is overwritten.
constexpr SliceSum combine_in_tree(SliceSum* slices, int count) {
  for (int width = 1; width < count; width *= 2) {
    for (int s = 0; s + width < count; s += 2 * width) {
      slices[s] = combine(slices[s], slices[s + width]);
    }
  }
  return slices[0];
}

}  // namespace specdec
