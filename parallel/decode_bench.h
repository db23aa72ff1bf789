#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/dtype.h"
#include "parallel/bench_turns.h"
#include "parallel/latency.h"

namespace specdec {

/// What one pass of a model makes of its communication.
struct DecodeShape {
  std::int64_t layers = 0;
  std::size_t elements = 0;     ///< of an all-reduce: rows * d_model
  std::size_t round_bytes = 0;  ///< of the round's message
  std::optional<double> gap;    ///< seconds of compute before each all-reduce; none: weights are read
  std::size_t layer_bytes = 0;  ///< of this rank's weights: before each all-reduce half of them are read
  std::size_t head_bytes = 0;   ///< the same, read at the end
};

/// Seconds; maxima over ranks of each token, all-reduce and broadcast.
struct DecodeFigures {
  int tokens = 0;
  LatencySummary token;        ///< one pass: broadcast, 2 * layers times gap and all-reduce, head
  LatencySummary all_reduce;   ///< each of them
  LatencySummary all_reduces;  ///< of one token together
  LatencySummary broadcast;
  double gap = 0;          ///< compute for each all-reduce, on this rank, on average
  std::int64_t wrong = 0;  ///< elements of all all-reduces on all ranks
  std::int64_t late = 0;
};

/// Times passes after a barrier of `control`, as bench_all_reduce does all-reduces; a contender's broadcast goes its own way
/// too. Collective.
template <typename T>
std::vector<DecodeFigures> bench_decode(Communicator& control, std::span<const Contender> contenders,
                                        const DecodeShape& shape, const BenchEffort& effort,
                                        const std::function<bool()>& stop);

extern template std::vector<DecodeFigures> bench_decode<float>(Communicator&, std::span<const Contender>,
                                                               const DecodeShape&, const BenchEffort&,
                                                               const std::function<bool()>&);
extern template std::vector<DecodeFigures> bench_decode<BF16>(Communicator&, std::span<const Contender>,
                                                              const DecodeShape&, const BenchEffort&,
                                                              const std::function<bool()>&);

}  // namespace specdec
