#pragma once

#include <cstddef>
#include <cstdint>

namespace specdec::cuda {

/// How many blocks of a kernel run, of how many threads, with how much memory each. A grid of no blocks is none.
struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
  int threads = 1;
  std::size_t shared_bytes = 0;
};

}  // namespace specdec::cuda
