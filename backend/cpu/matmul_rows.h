#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul_kernel.h"

namespace specdec {

/// Weights that stay in the second-level cache while further blocks of rows run over them; half of the smallest one that is common.
inline constexpr std::int64_t kCachedWeightBytes = std::int64_t{256} << 10;

/// One block of rows over a group of panels.
struct BlockOfRows {
  std::int64_t rows;
  const std::byte* x;
  float* y;
  std::int64_t begin;  ///< the group's panels
  std::int64_t end;
  /// The group's first, which reads its weights from wherever they are. The others find them in the cache.
  bool first;
  /// New weights are read after it: it is the group's last.
  bool new_next;
  /// Its part of the group that comes after this one, which the blocks share the asking for: memory then works while each of them multiplies, where it otherwise would while the first one
  /// waits for it, and rest while the others multiply. No bytes where there is one block, or nothing known to come.
  const std::byte* later;
  std::int64_t later_bytes;
};

/// How MatmulKernel::run goes over panels [begin, end): a group of panels that the cache holds, as many at least as go side by side (MatmulKernel::side_by_side), all blocks of rows
/// over it, the next group. Calls work(BlockOfRows) for each. `Work` is a type of the kernel's own file, so that this is a function of that file too (matmul_kernel.h).
template <class Work>
void for_blocks_of_rows(const MatmulJob& job, std::int64_t begin, std::int64_t end,
                        decltype(MatmulKernel::side_by_side) side_by_side, const Work& work) {
  std::int64_t group = end - begin;
  if (job.blocks > 1 && job.panel_bytes > 0) {
    const std::int64_t least = side_by_side((job.rows + job.blocks - 1) / job.blocks);
    group = kCachedWeightBytes / job.panel_bytes;
    group = group < least ? least : group;
  }
  for (; begin < end; begin += group) {
    const std::int64_t stop = end - begin < group ? end : begin + group;
    PanelRun later = {};
    if (job.blocks > 1) {
      later = stop == end ? job.next : PanelRun{job.panels + stop * job.panel_bytes, job.panel_bytes, end - stop};
    }
    const std::int64_t bytes = (stop - begin) * job.panel_bytes;
    const std::int64_t known = later.bytes * later.count;
    const std::int64_t later_bytes = known < bytes ? known : bytes;
    for (std::int64_t i = 0; i < job.blocks; ++i) {
      const std::int64_t row = job.rows * i / job.blocks;
      const std::int64_t from = later_bytes * i / job.blocks;
      // Further blocks of rows find their weights in the cache; only the last one goes on to new ones.
      work(BlockOfRows{.rows = job.rows * (i + 1) / job.blocks - row,
                       .x = job.x + row * job.x_bytes,
                       .y = job.y + row * job.y_stride,
                       .begin = begin,
                       .end = stop,
                       .first = i == 0,
                       .new_next = i + 1 == job.blocks,
                       .later = later.data + from,
                       .later_bytes = later_bytes * (i + 1) / job.blocks - from});
    }
  }
}

}  // namespace specdec
