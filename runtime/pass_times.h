#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/config.h"
#include "runtime/warm_loops.h"

namespace specdec {

/// Median seconds of passes of rank 0 of a job, of the target beside the other ranks' (TimedRanks) and of all else with nothing else running: what a calibration needs beside real jobs.
struct PassTimes {
  int threads = 1;  ///< that it has in such a job
  /// Its part of the target over 1, 2, ... rows without their collectives, as many passes of the draft before each as in a loop (before one row as before two).
  std::vector<double> target;
  std::vector<double> target_after_smaller;  ///< the same after those of smaller_draft(), over kComparedRows at most
  double whole_target = 0;                   ///< over one row, of all of the target: what it reads when it reads alone
  std::vector<double> draft;  ///< of 1, 2, ... rows, one after another: as far as its weights stay in a cache they do
  double draft_after_target = 0;  ///< of one row, after a pass of the target
  /// Of one row of model_for_cache(), and the cache that it is for: of the cores of this rank. 0: not known.
  double in_own_cache = 0;
  double filling_own_cache = 0;  ///< of one row of that model widened_to() all of that cache
  std::int64_t own_cache_bytes = 0;
  double layer = 0;  ///< of a layer that has next to no weights
  /// Of the part of the target over one row, on all else than products; 0 where a backend does its work later, so that nobody can tell.
  double beside_products = 0;
  /// What the part of the target takes longer over 1, 2, ... kComparedRows rows for `more_keys` more committed tokens; nothing where its context has no room for them.
  std::vector<double> after_more_keys;
  std::int64_t more_keys = 0;
  WarmLoops beside;  ///< passes: of loops of the draft
};

/// The draft with a quarter of its layers, of random weights: what it is to the target, this one is to the draft.
ModelConfig smaller_draft(ModelConfig draft);

/// The draft with a quarter of its layers, made narrower until a cache of `bytes` keeps all of its weights (kKeptWhole); nothing where its vocabulary is too large for that.
std::optional<ModelConfig> model_for_cache(ModelConfig draft, DType dtype, std::int64_t bytes);
/// `model` with wider feed-forward networks, as wide as they can be with weights of no more than `bytes`.
ModelConfig widened_to(ModelConfig model, DType dtype, std::int64_t bytes);

/// As many rows as PassTimes has.
inline constexpr std::int64_t kTimedRows = 16;
/// As many where two kinds of passes are told apart: the more rows, the longer both take, and the less can be seen of what they differ by.
inline constexpr std::int64_t kComparedRows = 8;

/// Times passes of the config's two models after its prompts, in the mean, and half of what it generates, with its types and instruction set, by each number of ranks that the target is cut over.
/// `cores`: of this host, which so many ranks share as those of a job do that are all on it (agree_threads.h). The config has a draft.
std::map<int, PassTimes> time_passes(const RunConfig& config, std::span<const std::int64_t> rank_counts, int cores);

}  // namespace specdec
