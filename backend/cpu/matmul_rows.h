#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul_kernel.h"

namespace specdec {

/// Weights that stay in the second-level cache while further blocks of rows run over them; half of the smallest one that is common.
inline constexpr std::int64_t kCachedWeightBytes = std::int64_t{256} << 10;

/// How MatmulKernel::run goes over panels [begin, end): a group of panels that the cache holds, all blocks of rows over it, the next group. Calls
/// work(rows, x, y, first panel, end of the group, whether new weights are read after it) for each. `Work` is a type of the kernel's own file, so that this is
/// a function of that file too (matmul_kernel.h).
template <class Work>
void for_blocks_of_rows(const MatmulJob& job, std::int64_t begin, std::int64_t end, const Work& work) {
  std::int64_t group = end - begin;
  if (job.blocks > 1 && job.panel_bytes > 0) {
    group = kCachedWeightBytes / job.panel_bytes;
    group = group < 1 ? 1 : group;
  }
  for (; begin < end; begin += group) {
    const std::int64_t stop = end - begin < group ? end : begin + group;
    for (std::int64_t i = 0; i < job.blocks; ++i) {
      const std::int64_t row = job.rows * i / job.blocks;
      const std::int64_t rows = job.rows * (i + 1) / job.blocks - row;
      // Further blocks of rows find their weights in the cache; only the last one goes on to new ones.
      work(rows, job.x + row * job.x_bytes, job.y + row * job.y_stride, begin, stop, i + 1 == job.blocks);
    }
  }
}

}  // namespace specdec
