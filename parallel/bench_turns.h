#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/dtype.h"
#include "parallel/communicator.h"
#include "parallel/device_payload.h"

namespace specdec {

/// How often something is done in a benchmark.
struct BenchEffort {
  std::optional<int> iterations;  ///< timed, of each contender; none: as many as fit into `seconds`
  std::optional<int> warmup;      ///< untimed before; none: for a tenth of `seconds`
  double seconds = 0.25;          ///< a contender
};

/// Who runs in a benchmark.
struct Contender {
  Communicator* group = nullptr;
  /// Collectives so far that took longer than a modelled interconnect, on this rank; empty for a real one.
  std::function<std::int64_t()> late;
  /// Where `group` is on the device: a payload there, of that type and so many elements. Empty for the host's memory.
  std::function<std::unique_ptr<DevicePayload>(DType, std::size_t)> on_device;

  std::int64_t late_so_far() const { return late ? late() : 0; }
};

/// So many runs of one contender in a row.
struct BenchBlock {
  std::size_t contender = 0;
  int runs = 0;
};

/// `iterations` runs of each contender in blocks that take turns forwards and backwards, A B B A A B ...: whatever drifts
/// on the machine meanwhile falls on all alike.
std::vector<BenchBlock> interleaved(std::size_t contenders, int iterations);

/// How many iterations of contenders that take `seconds` each fit into `effort`.
int iterations_for(const BenchEffort& effort, const std::vector<double>& seconds);

/// Lets each of `contenders` run as often as `effort` says, first untimed, then timed in turns; the first run after another
/// contender's is untimed too, for what that one left in the caches. `run(contender, runs, timed)` does so many. `stop` is asked on
/// rank 0 between blocks; false when it held. Collective over `control`.
bool take_turns(Communicator& control, std::size_t contenders, const BenchEffort& effort,
                const std::function<void(std::size_t contender, int runs, bool timed)>& run,
                const std::function<bool()>& stop);

}  // namespace specdec
