#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/dtype.h"
#include "parallel/bench_turns.h"
#include "parallel/latency.h"

namespace specdec {

/// What one contender did.
struct AllReduceFigures {
  int iterations = 0;
  LatencySummary seconds;  ///< of the iterations' maxima over ranks
  std::int64_t wrong = 0;  ///< elements that were not the sum, on all ranks, untimed runs included
  std::int64_t late = 0;   ///< iterations, on the rank that has most
};

/// Times all-reduces in place of `elements` elements, float or BF16. Before each one every rank has its payload in place
/// and leaves a barrier of `control`; the iteration's time is the largest of all ranks' own, from that barrier to the
/// result, which for a payload on a device is when the host knows of it, unless the device says how long it took. Every result is verified (crafted_payload.h). All contenders and `control` have the same ranks. `stop` is
/// asked on rank 0 now and then; no figures when it held. Collective.
template <typename T>
std::vector<AllReduceFigures> bench_all_reduce(Communicator& control, std::span<const Contender> contenders,
                                               std::size_t elements, const BenchEffort& effort,
                                               const std::function<bool()>& stop);

extern template std::vector<AllReduceFigures> bench_all_reduce<float>(Communicator&, std::span<const Contender>,
                                                                      std::size_t, const BenchEffort&,
                                                                      const std::function<bool()>&);
extern template std::vector<AllReduceFigures> bench_all_reduce<BF16>(Communicator&, std::span<const Contender>,
                                                                     std::size_t, const BenchEffort&,
                                                                     const std::function<bool()>&);

}  // namespace specdec
