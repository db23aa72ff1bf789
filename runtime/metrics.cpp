#include "runtime/metrics.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "runtime/theory.h"

namespace specdec {
namespace {

void add(LoopSplit& split, const LoopRecord& loop) {
  split.draft += loop.draft;
  split.broadcast += loop.broadcast;
  split.score_compute += loop.score_compute;
  split.score_all_reduce += loop.score_all_reduce;
  split.decide += loop.decide;
  split.rest += loop.rest();
  split.total += loop.total;
}

double score(const LoopSplit& split) { return split.score_compute + split.score_all_reduce; }

/// Sums over loops, before they become figures.
struct LoopSums {
  double beta = 0;
  std::int64_t full_tokens = 0;
  std::map<std::int64_t, std::int64_t> full_drafted;  ///< how many full loops drafted so many tokens
  std::vector<Weighted> token_times;
  std::vector<Weighted> loop_times;
};

void add(RunMetrics& metrics, LoopSums& sums, const LoopRecord& loop) {
  ++metrics.loops;
  metrics.tokens += loop.emitted;
  metrics.drafted += loop.drafted;
  metrics.drafted_ahead += loop.ahead ? 1 : 0;
  metrics.reached += loop.reached;
  metrics.accepted += loop.accepted;
  add(metrics.split, loop);
  sums.beta += loop.beta_sum;
  sums.loop_times.emplace_back(loop.total, 1);
  if (loop.emitted > 0) sums.token_times.emplace_back(loop.total / static_cast<double>(loop.emitted), loop.emitted);
  if (!loop.cut) {
    ++metrics.full_loops;
    sums.full_tokens += loop.emitted;
    ++sums.full_drafted[loop.drafted];
    add(metrics.full_split, loop);
  }
}

/// Eq. 1 as the mean over full loops, which are of one K unless that adapts; of the K that was asked for when there are none.
double expected_tokens(double alpha, const LoopSums& sums, std::int64_t k) {
  double tokens = 0;
  std::int64_t loops = 0;
  for (const auto& [drafted, count] : sums.full_drafted) {
    tokens += static_cast<double>(count) * tokens_per_loop(alpha, drafted);
    loops += count;
  }
  return loops == 0 ? tokens_per_loop(alpha, k) : tokens / static_cast<double>(loops);
}

/// Empty when an output is missing or unfinished in either run.
std::optional<bool> same_tokens(const RunRecord& a, const RunRecord& b) {
  if (a.outputs.size() != b.outputs.size() || a.outputs.empty()) return std::nullopt;
  bool same = true;
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    for (const OutputRecord* output : {&a.outputs[i], &b.outputs[i]}) {
      if (output->finish_reason.empty() || output->finish_reason == "interrupted") return std::nullopt;
    }
    same = same && a.outputs[i].token_ids == b.outputs[i].token_ids;
  }
  return same;
}

}  // namespace

RunMetrics measure(const RunRecord& run) {
  RunMetrics metrics;
  LoopSums sums;
  double ttft = 0;
  std::int64_t started = 0;
  metrics.prompts = static_cast<std::int64_t>(run.outputs.size());
  for (const OutputRecord& output : run.outputs) {
    metrics.prefill_seconds += output.prefill;
    if (!output.token_ids.empty()) {
      ttft += output.ttft;
      ++started;
    }
    for (const LoopRecord& loop : output.loops) add(metrics, sums, loop);
  }
  const auto tokens = static_cast<double>(metrics.tokens);
  metrics.decode_seconds = metrics.split.total;
  metrics.seconds_per_token = ratio(metrics.decode_seconds, tokens);
  metrics.tokens_per_second = ratio(tokens, metrics.decode_seconds);
  metrics.ttft = ratio(ttft, static_cast<double>(started));
  metrics.token_time = percentiles(std::move(sums.token_times));
  metrics.loop_time = percentiles(std::move(sums.loop_times));
  metrics.acceptance_rate = ratio(sums.beta, static_cast<double>(metrics.reached));
  metrics.accepted_over_reached = ratio(static_cast<double>(metrics.accepted), static_cast<double>(metrics.reached));
  metrics.tokens_per_loop = ratio(static_cast<double>(sums.full_tokens), static_cast<double>(metrics.full_loops));
  for (const auto& [drafted, count] : sums.full_drafted) metrics.full_drafted += drafted * count;
  metrics.draft_seconds_per_token = ratio(metrics.split.draft, static_cast<double>(metrics.drafted));
  metrics.full_seconds_per_token = ratio(metrics.full_split.total, static_cast<double>(sums.full_tokens));
  if (metrics.acceptance_rate) {
    // A sum of rounded probabilities may pass 1 by an ulp, where eq. 1 is not defined.
    metrics.acceptance_rate = std::clamp(*metrics.acceptance_rate, 0.0, 1.0);
    metrics.expected_tokens_per_loop = expected_tokens(*metrics.acceptance_rate, sums, run.k);
  }
  return metrics;
}

std::vector<MeasuredRun> measure(const JobRecord& job) {
  std::vector<MeasuredRun> runs;
  runs.reserve(job.runs.size());
  for (const RunRecord& run : job.runs) runs.push_back({.record = &run, .metrics = measure(run)});
  return runs;
}

RunPair runs_under(const InterconnectChoice& interconnect, std::span<const MeasuredRun> runs) {
  RunPair pair;
  for (const MeasuredRun& run : runs) {
    if (name_of(run.record->interconnect) == name_of(interconnect)) {
      (run.record->method == name_of(Method::kSpeculative) ? pair.speculative : pair.autoregressive) = &run;
    }
  }
  return pair;
}

Comparison compare(const RunPair& runs, bool greedy, std::optional<double> operations_ratio) {
  Comparison out;
  if (runs.speculative == nullptr) return out;
  const RunMetrics& fast = runs.speculative->metrics;
  const auto per_full_loop = [&](double seconds) { return ratio(seconds, static_cast<double>(fast.full_loops)); };
  const double k = fast.full_loops == 0 ? static_cast<double>(runs.speculative->record->k)
                                        : static_cast<double>(fast.full_drafted) / static_cast<double>(fast.full_loops);
  out.cost_over_score = ratio(fast.draft_seconds_per_token, per_full_loop(score(fast.full_split)));
  if (fast.acceptance_rate) {
    const double tokens = *fast.expected_tokens_per_loop;
    if (out.cost_over_score) out.speedup_over_score = speedup_of_loops(tokens, k, *out.cost_over_score);
    if (operations_ratio) out.operations = operations_of_loops(tokens, k, *operations_ratio);
  }
  if (runs.autoregressive == nullptr) return out;
  const RunMetrics& alone = runs.autoregressive->metrics;
  out.speedup = ratio(alone.seconds_per_token, fast.seconds_per_token);
  out.full_speedup = ratio(alone.seconds_per_token, fast.full_seconds_per_token);
  out.cost_ratio = ratio(fast.draft_seconds_per_token, alone.seconds_per_token);
  if (fast.acceptance_rate && out.cost_ratio) {
    out.predicted_speedup = speedup_of_loops(*fast.expected_tokens_per_loop, k, *out.cost_ratio);
    out.measured_over_predicted = ratio(out.full_speedup, out.predicted_speedup);
    out.best_k = best_k(*fast.acceptance_rate, *out.cost_ratio, kMaxBestK);
    out.best_speedup = speedup_factor(*fast.acceptance_rate, *out.best_k, *out.cost_ratio);
  }
  const auto per_step_alone = ratio(score(alone.split), static_cast<double>(alone.loops));
  out.score_cost = ratio(per_full_loop(score(fast.full_split)), per_step_alone);
  out.loop_cost = ratio(per_full_loop(fast.full_split.total), alone.seconds_per_token);
  if (greedy) out.identical = same_tokens(*runs.autoregressive->record, *runs.speculative->record);
  return out;
}

}  // namespace specdec
