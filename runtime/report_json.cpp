#include "runtime/report_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/config_keys.h"
#include "runtime/interconnect_json.h"
#include "runtime/metrics.h"
#include "runtime/nullable.h"
#include "runtime/units.h"
#include "runtime/version.h"
#include "runtime/whole_file.h"

namespace specdec {
namespace {

using nlohmann::json;

json milliseconds(const std::optional<double>& seconds) { return nullable(seconds, kMsPerSecond); }

json milliseconds(const std::optional<Percentiles>& p) {
  if (!p) return nullptr;
  return {{"p50", p->p50 * kMsPerSecond}, {"p90", p->p90 * kMsPerSecond}, {"p99", p->p99 * kMsPerSecond}};
}

json split_json(const LoopSplit& split) {
  json out;
  const auto put = [&](const char* name, double seconds) {
    out[name] = {{"seconds", seconds}, {"share", split.total > 0 ? json(seconds / split.total) : json()}};
  };
  put("draft", split.draft);
  put("broadcast", split.broadcast);
  put("score_compute", split.score_compute);
  put("score_all_reduce", split.score_all_reduce);
  put("decide", split.decide);
  put("rest", split.rest);
  put("total", split.total);
  return out;
}

json metrics_json(const RunMetrics& m) {
  return {{"prompts", m.prompts},
          {"loops", m.loops},
          {"full_loops", m.full_loops},
          {"full_loops_drafted", m.full_drafted},
          {"tokens", m.tokens},
          {"drafted", m.drafted},
          {"drafted_ahead", m.drafted_ahead},
          {"reached", m.reached},
          {"accepted", m.accepted},
          {"prefill_seconds", m.prefill_seconds},
          {"decode_seconds", m.decode_seconds},
          {"ms_per_token", milliseconds(m.seconds_per_token)},
          {"tokens_per_second", nullable(m.tokens_per_second)},
          {"ttft_ms", milliseconds(m.ttft)},
          {"token_ms", milliseconds(m.token_time)},
          {"loop_ms", milliseconds(m.loop_time)},
          {"acceptance_rate", nullable(m.acceptance_rate)},
          {"accepted_over_reached", nullable(m.accepted_over_reached)},
          {"tokens_per_loop", nullable(m.tokens_per_loop)},
          {"expected_tokens_per_loop", nullable(m.expected_tokens_per_loop)},
          {"draft_ms_per_token", milliseconds(m.draft_seconds_per_token)},
          {"full_loops_ms_per_token", milliseconds(m.full_seconds_per_token)},
          {"split", split_json(m.split)},
          {"full_loops_split", split_json(m.full_split)}};
}

json output_json(const OutputRecord& output) {
  double decode = 0;
  for (const LoopRecord& loop : output.loops) decode += loop.total;
  return {{"prompt", output.prompt},
          {"prompt_ids", output.prompt_ids},
          {"token_ids", output.token_ids},
          {"text", output.text},
          {"finish_reason", output.finish_reason.empty() ? json() : json(output.finish_reason)},
          {"ttft_ms", output.token_ids.empty() ? json() : json(output.ttft * kMsPerSecond)},
          {"prefill_ms", output.prefill * kMsPerSecond},
          {"decode_ms", decode * kMsPerSecond},
          {"loops", output.loops.size()}};
}

json interconnect_name_json(const InterconnectChoice& choice) {
  return {{"name", name_of(choice)}, {"modelled", choice.has_value()}};
}

json totals_json(const ModelledTotals& totals) {
  return {{"total", totals.collectives},
          {"late", totals.late},
          {"late_seconds", totals.late_seconds},
          {"modelled_seconds", totals.modelled_seconds}};
}

json run_json(const MeasuredRun& measured) {
  const RunRecord& run = *measured.record;
  json outputs = json::array();
  for (const OutputRecord& output : run.outputs) outputs.push_back(output_json(output));
  return {{"method", run.method},
          {"k", run.k},
          {"draft_length", name_of(run.draft_length)},
          {"interconnect", interconnect_name_json(run.interconnect)},
          {"collectives", run.interconnect ? totals_json(run.modelled) : json()},
          {"outputs", outputs},
          {"metrics", metrics_json(measured.metrics)}};
}

json comparison_json(const Comparison& c) {
  return {{"speedup", nullable(c.speedup)},
          {"full_loops_speedup", nullable(c.full_speedup)},
          {"identical", c.identical ? json(*c.identical) : json()},
          {"cost_ratio", nullable(c.cost_ratio)},
          {"predicted_speedup", nullable(c.predicted_speedup)},
          {"measured_over_predicted", nullable(c.measured_over_predicted)},
          {"best_k", c.best_k ? json(*c.best_k) : json()},
          {"best_k_predicted_speedup", nullable(c.best_speedup)},
          {"operations_factor", nullable(c.operations)},
          {"cost_over_score", nullable(c.cost_over_score)},
          {"speedup_over_score", nullable(c.speedup_over_score)},
          {"score_cost", nullable(c.score_cost)},
          {"loop_cost", nullable(c.loop_cost)}};
}

json comparisons_json(const JobRecord& job, std::span<const MeasuredRun> runs) {
  json out = json::array();
  for (const InterconnectChoice& choice : job.config.interconnects) {
    json comparison =
        comparison_json(compare(runs_under(choice, runs), job.config.texts_must_agree(), job.machine.operations_ratio));
    comparison["interconnect"] = interconnect_name_json(choice);
    out.push_back(std::move(comparison));
  }
  return out;
}

/// The job's interconnects with what their models did in all runs.
json interconnects_json(const JobRecord& job) {
  json out = json::array();
  for (const InterconnectChoice& choice : job.config.interconnects) {
    ModelledTotals sum;
    for (const RunRecord& run : job.runs) {
      if (name_of(run.interconnect) == name_of(choice)) sum += run.modelled;
    }
    json interconnect = interconnect_json(choice);
    interconnect["collectives"] = choice ? totals_json(sum) : json();
    out.push_back(std::move(interconnect));
  }
  return out;
}

json weights_json(const WeightsChoice& choice) {
  return {{"source", choice.random ? "random" : "checkpoint"},
          {"label", choice.random ? json(label_of(choice)) : json()},
          {"seed", choice.random ? json(choice.seed) : json()}};
}

json acceptance_json(const AcceptanceChoice& choice) {
  return {{"source", choice.synthetic ? "synthetic" : "models"},
          {"label", choice.synthetic ? json(label_of(choice)) : json()},
          {"alpha", choice.synthetic ? json(choice.alpha) : json()}};
}

json weights_cache_json(const JobRecord& job) {
  if (!job.config.caches_weights()) return nullptr;
  const WeightsCacheRecord& cache = job.machine.weights_cache;
  return {{"from_cache", cache.from_cache},
          {"packed", cache.packed},
          {"problem", cache.problem.empty() ? json() : json(cache.problem)}};
}

json machine_json(const JobRecord& job) {
  const MachineRecord& m = job.machine;
  return {{"ranks", m.ranks},
          {"hosts", m.hosts},
          {"cpus", m.cpus},
          {"threads", m.threads},
          {"backend", m.backend},
          {"transport", m.transport},
          {"dtype", m.dtype},
          {"draft_dtype", m.draft_dtype.empty() ? json() : json(m.draft_dtype)},
          {"weights", weights_json(job.config.weights)},
          {"acceptance", acceptance_json(job.config.acceptance)},
          {"weights_cache", weights_cache_json(job)},
          {"interconnects", interconnects_json(job)}};
}

}  // namespace

std::string report_json(const JobRecord& job) {
  json config;
  for (const ConfigKey& key : config_keys()) config[key.name] = key.write(job.config);
  const std::vector<MeasuredRun> measured = measure(job);
  json runs = json::array();
  for (const MeasuredRun& run : measured) runs.push_back(run_json(run));
  const json comparisons = comparisons_json(job, measured);
  const json out = {{"schema", "specdec.run"},
                    {"version", kReportVersion},
                    {"program", version_text("specdec_dist")},
                    {"status", name_of(job.status)},
                    {"error", job.error.empty() ? json() : json(job.error)},
                    {"machine", machine_json(job)},
                    {"config", config},
                    {"runs", runs},
                    {"comparison", comparisons.front()},
                    {"comparisons", comparisons}};
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

void write_report_json(const JobRecord& job, const std::filesystem::path& path) {
  write_whole_file(path, report_json(job), "--json");
}

}  // namespace specdec
