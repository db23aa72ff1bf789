#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/graph_timer.h"

/// How fast this GPU reads: what products are compared with.
namespace specdec {

struct ReadFigure {
  int blocks_per_multiprocessor = 0;
  int threads = 0;
  int loads = 0;  ///< of 16 bytes that a thread has under way
  double bytes_per_second = 0;
};

/// Reads `bytes` at `memory` with a kernel that does nothing else, in several shapes; the fastest first.
std::vector<ReadFigure> measure_reads(GraphTimer& timer, const std::byte* memory, std::size_t bytes,
                                      int multiprocessors);

/// Bytes a second that the maker's data sheet names; none for a GPU that is not in the list.
std::optional<double> nominal_bandwidth(const std::string& gpu);

}  // namespace specdec
