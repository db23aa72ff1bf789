#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/interconnect.h"

namespace specdec {

/// How fast a rank reads weights, keys and values, and what more rows cost.
struct Reading {
  double rate = 0;       ///< bytes a second of a rank that reads alone
  double keys_rate = 0;  ///< the same of the KV cache; 0: as of weights
  /// What a rank that reads alone takes for a pass over 1, 2, ... rows over what it takes for one, where that was measured; each row beyond costs as much as the last one here. Empty: 1.
  std::vector<double> rows_cost;

  double cost_of(std::int64_t rows) const;
  /// Of a pass over `rows` rows, for bytes of weights and of the KV cache.
  double seconds(double weights, double keys, std::int64_t rows) const;
};

/// Where a pass finds the weights.
enum class WeightsIn : std::uint8_t {
  kMemory,
  kCache,
  kCacheOnce,  ///< a model that stays in a cache while only its own passes come, the first time after another's
};

/// Of a cache, what is read again and again: of so much all is found there, of so much nothing, and between them less and less.
inline constexpr double kKeptWhole = 0.5;
inline constexpr double kKeptNothing = 1.5;

/// What disturbs a machine, beside its interconnect's own jitter; for simulations alone.
struct Disturbance {
  Jitter compute;               ///< of what a rank does between two collectives
  int stragglers = 0;           ///< ranks that are always slower
  double straggler_factor = 1;  ///< by so much
};

/// A machine as far as the cost model knows it (configs/hardware/): what a rank reads and computes, what comes on top, and how ranks meet.
struct Hardware {
  std::string name;
  std::string source;       ///< where its figures are from
  int ranks = 1;            ///< that it has
  double memory_bytes = 0;  ///< of a rank; 0: not said
  Reading memory;           ///< weights and cache
  Reading cache;            ///< of models that stay in a cache of the processor, all ranks together
  double cached_bytes = 0;  ///< that such a model has at most; 0: none stays
  /// The second-level cache of a rank's own cores, and bytes a second from there of such a model's part, keys and values; 0: not known.
  double own_cache_bytes = 0;
  double own_cache_rate = 0;
  double own_cache_share = 0.5;  ///< of as much as it has, read again and again: what is found there
  double refill_rate = 0;        ///< bytes a second at which such a model is read back; 0: as any other
  /// What a pass of a target that does not stay in a cache takes longer for each byte of weights that were read for drafting since the one before: they drove as much of it out.
  double displaced_seconds = 0;
  double node_read_rate = 0;    ///< of all ranks of a node together; 0: as many times `memory.rate`
  int ranks_per_node = 0;       ///< that share node_read_rate; 0: all
  double operations_rate = 0;   ///< floating-point operations a second of a rank; 0: rows_cost says it
  double attention_rate = 0;    ///< the same of attention, a time beside all reading; 0: it takes none of its own
  double layer_seconds = 0;     ///< a layer, beside what it reads and its all-reduces
  double pass_seconds = 0;      ///< a pass, beside its layers
  double drafted_seconds = 0;   ///< a drafted token, beside its pass: sampling, and bookkeeping
  double accepted_seconds = 0;  ///< a drafted token that stands, over one that does not
  double loop_seconds = 0;      ///< a loop, beside its passes and drafted tokens
  /// More of the two where the target does not stay in a cache, each of whose passes drives out what they need: of a drafted token for each byte of the draft's weights, and of a loop.
  double cold_drafted_seconds = 0;
  double cold_loop_seconds = 0;
  double cold_layer_seconds = 0;  ///< more of a layer whose weights are read from memory
  double cache_bytes = 2;         ///< of an element of the KV cache
  double payload_bytes = 2;       ///< of an element that is reduced
  Interconnect interconnect;
  Disturbance disturbance;

  /// Whether `bytes` of weights, of all ranks together, stay in a cache from one pass to the next.
  bool keeps(double bytes) const { return bytes <= cached_bytes; }
  /// What a rank that reads so many bytes again and again finds of them in its own cache; 0 where its rate is not known.
  double share_in_own_cache(double bytes) const;
  /// Seconds that `operations` of attention take beside all reading.
  double attention_seconds(double operations) const { return attention_rate > 0 ? operations / attention_rate : 0; }
  /// Seconds in which each of `ranks` ranks, all at once, reads `weights` bytes for `rows` rows, and `keys` bytes of the KV cache; `in_own_cache`: of what stays in a cache, the share
  /// that the rank's own has.
  double reading_seconds(double weights, double keys, std::int64_t rows, int ranks, WeightsIn in,
                         double in_own_cache = 0) const;
};

}  // namespace specdec
