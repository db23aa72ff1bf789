#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/record.h"
#include "runtime/statistics.h"

/// Figures from the raw records of record.h. A figure that has no data is empty, never 0.
///
/// Decode time is the sum of LoopRecord::total and decoded tokens the sum of LoopRecord::emitted, over all loops of all prompts:
/// prefill is apart, and counts in the time to the first token only. A loop is *full* when it is not `cut`; what is compared with
/// the theory is taken from full loops, since eq. 1 knows no limit and no stop.
namespace specdec {

/// Where the time of loops went, in seconds; the parts add up to the total.
struct LoopSplit {
  double draft = 0;
  double broadcast = 0;
  double score_compute = 0;
  double score_all_reduce = 0;
  double decide = 0;
  double rest = 0;
  double total = 0;
};

/// One run over all its prompts.
struct RunMetrics {
  std::int64_t prompts = 0;
  std::int64_t loops = 0;
  std::int64_t full_loops = 0;
  std::int64_t tokens = 0;  ///< decoded
  std::int64_t drafted = 0;
  std::int64_t full_drafted = 0;   ///< in full loops
  std::int64_t drafted_ahead = 0;  ///< loops whose block was there when they began (dedicated_draft.h)
  std::int64_t reached = 0;
  std::int64_t accepted = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;

  std::optional<double> seconds_per_token;  ///< decode time / decoded tokens
  std::optional<double> tokens_per_second;  ///< its inverse
  std::optional<double> ttft;               ///< mean over prompts that have a token
  std::optional<Percentiles> token_time;    ///< a loop's time, spread evenly over its tokens; a token weighs 1
  std::optional<Percentiles> loop_time;

  std::optional<double> acceptance_rate;           ///< alpha = E[beta]: sum of beta_sum / reached positions
  std::optional<double> accepted_over_reached;     ///< the same rate counted; noisier
  std::optional<double> tokens_per_loop;           ///< over full loops
  std::optional<double> expected_tokens_per_loop;  ///< eq. 1 at the measured alpha and the K of each full loop
  std::optional<double> draft_seconds_per_token;   ///< draft time / drafted tokens
  std::optional<double> full_seconds_per_token;    ///< decode time / decoded tokens of full loops
  LoopSplit split;                                 ///< of all loops
  LoopSplit full_split;                            ///< of full loops
};

RunMetrics measure(const RunRecord& run);

/// A run with its figures.
struct MeasuredRun {
  const RunRecord* record = nullptr;
  RunMetrics metrics;
};

/// All runs of a job that outlives the result.
std::vector<MeasuredRun> measure(const JobRecord& job);

/// The two runs of a job under one interconnect, as far as there are any.
struct RunPair {
  const MeasuredRun* autoregressive = nullptr;
  const MeasuredRun* speculative = nullptr;
};

RunPair runs_under(const InterconnectChoice& interconnect, std::span<const MeasuredRun> runs);

/// Speculative against autoregressive decoding of the same prompts.
struct Comparison {
  std::optional<double> speedup;       ///< seconds per token, autoregressive over speculative, all loops
  std::optional<double> full_speedup;  ///< the same with the speculative run's full loops: what theorem 3.8 speaks of
  std::optional<double> cost_ratio;    ///< c: draft seconds per drafted token / target seconds per token alone
  std::optional<double> predicted_speedup;  ///< theorem 3.8 at the measured alpha and c, and the K of each full loop
  std::optional<double> measured_over_predicted;  ///< full_speedup / predicted_speedup
  std::optional<double> operations;               ///< theorem 3.11 at the measured alpha and c^
  std::optional<std::int64_t> best_k;             ///< by theorem 3.8 at the measured alpha and c, up to kMaxBestK
  std::optional<double> best_speedup;             ///< what it predicts there
  std::optional<double> score_cost;               ///< scoring pass of a full loop (K+1 rows) / scoring pass of one row
  std::optional<double>
      loop_cost;  ///< time of a full loop / time of one token alone; full_speedup = tokens_per_loop / loop_cost
  /// c as a speculative run alone shows it: over its own scoring pass of a full loop, which the theorems take to last as long as the target's over one row.
  std::optional<double> cost_over_score;
  std::optional<double> speedup_over_score;  ///< theorem 3.8 at that c
  std::optional<bool> identical;             ///< greedy only: all prompts have the same tokens in both runs
};

inline constexpr std::int64_t kMaxBestK = 32;

/// Empty figures where a run or its data is missing; of a speculative run alone there are `operations` and what is over its own score. `greedy`: whether both runs chose the argmax, so that their tokens must agree;
/// `operations_ratio`: c^, where it is known; an
/// output that is unfinished in either run leaves `identical` empty.
Comparison compare(const RunPair& runs, bool greedy, std::optional<double> operations_ratio = {});

}  // namespace specdec
