#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/cpu/packed_cache.h"
#include "parallel/communicator.h"
#include "runtime/config.h"

namespace specdec {

/// What the cache of packed weights did for all ranks of a job.
struct WeightsCacheRecord {
  std::int64_t from_cache = 0;  ///< matrices
  std::int64_t packed = 0;
  std::string problem;  ///< why some could not be kept, on the lowest rank that says so; empty: none
};

/// The cache that `weights_cache` names, on this rank.
class WeightsCache {
 public:
  /// None for `off`, for random weights, and for backends that do not pack. A folder that was named and cannot be made throws kBadInput; that of
  /// `auto` becomes a problem of the record. `progress` as PackedCache has it.
  WeightsCache(const RunConfig& config, std::function<void()> progress);

  /// Null for none.
  PackedCache* packed() const { return cache_.get(); }
  /// Of all ranks, on rank 0 of `group`; empty elsewhere. Collective.
  WeightsCacheRecord gather(Communicator& group) const;

 private:
  std::unique_ptr<PackedCache> cache_;
  std::string problem_;  ///< of this rank's environment
};

}  // namespace specdec
