#include "runtime/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "runtime/forced_label.h"

namespace specdec {
namespace {

std::string figure(const std::optional<double>& value, double scale = 1) {
  return value ? fmt::format("{:.3g}", *value * scale) : "-";
}

std::string percentiles(const std::optional<Percentiles>& p) {
  return p ? fmt::format("{:.3g} / {:.3g} / {:.3g}", p->p50 * 1e3, p->p90 * 1e3, p->p99 * 1e3) : "-";
}

std::string counted(const std::optional<double>& value, std::int64_t part, std::int64_t whole) {
  return value ? fmt::format("{:.3f} ({}/{})", *value, part, whole) : "-";
}

struct Row {
  const char* label;
  std::function<std::string(const RunMetrics&)> cell;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"ms per token", [](const RunMetrics& m) { return figure(m.seconds_per_token, 1e3); }},
      {"tokens per second", [](const RunMetrics& m) { return figure(m.tokens_per_second); }},
      {"time to first token, ms", [](const RunMetrics& m) { return figure(m.ttft, 1e3); }},
      {"ms per token, P50/P90/P99", [](const RunMetrics& m) { return percentiles(m.token_time); }},
      {"ms per loop, P50/P90/P99", [](const RunMetrics& m) { return percentiles(m.loop_time); }},
      {"tokens / loops", [](const RunMetrics& m) { return fmt::format("{} / {}", m.tokens, m.loops); }},
      {"acceptance rate, E[beta]", [](const RunMetrics& m) { return figure(m.acceptance_rate); }},
      {"accepted / reached",
       [](const RunMetrics& m) { return counted(m.accepted_over_reached, m.accepted, m.reached); }},
      {"tokens per loop", [](const RunMetrics& m) { return figure(m.tokens_per_loop); }},
      {"  eq. 1 at that rate", [](const RunMetrics& m) { return figure(m.expected_tokens_per_loop); }},
  };
  return table;
}

std::string split_line(const char* label, const RunMetrics& m, double LoopSplit::*part) {
  const double share = m.split.total > 0 ? 100 * m.split.*part / m.split.total : 0;
  return fmt::format("  {:<26} {:>9.3f} ms {:>6.1f} %\n", label, 1e3 * m.split.*part / static_cast<double>(m.loops),
                     share);
}

/// Whether figures that are not this machine's own are in the report, so that each needs its label.
bool any_modelled(const JobRecord& job) {
  return std::ranges::any_of(job.config.interconnects, [](const InterconnectChoice& c) { return c.has_value(); });
}

/// The folders of target and draft, by name.
std::string shapes(const RunConfig& config) {
  const std::string target = config.target.filename().string();
  return config.draft.empty() ? target : target + " and " + config.draft.filename().string();
}

/// "K=4"; "K<=8, optimal" where it adapts.
std::string drafts_text(const RunRecord& run) {
  const bool fixed = run.draft_length == DraftLengthRule::kFixed;
  return fixed ? fmt::format("K={}", run.k) : fmt::format("K<={}, {}", run.k, name_of(run.draft_length));
}

/// "bf16", or "bf16, the draft's in int8" where they differ; where the draft is, unless on rank 0.
std::string weight_types(const MachineRecord& machine, Placement placement) {
  const bool differ = !machine.draft_dtype.empty() && machine.draft_dtype != machine.dtype;
  std::string text = differ ? fmt::format("{}, the draft's in {}", machine.dtype, machine.draft_dtype) : machine.dtype;
  return placement == Placement::kRank0 ? text : fmt::format("{}, draft {}", text, name_of(placement));
}

std::string machine_lines(const JobRecord& job) {
  const MachineRecord& machine = job.machine;
  std::string text =
      fmt::format("\n{} rank{} on {} ({}; {} transport), {}, threads a rank: {}, weights in {}\n", machine.ranks,
                  machine.ranks == 1 ? "" : "s", fmt::join(machine.hosts, ", "), fmt::join(machine.cpus, ", "),
                  machine.transport, machine.backend, machine.threads, weight_types(machine, job.config.placement));
  if (job.config.caches_weights()) {
    text += fmt::format("Matrices of weights from the cache: {}, packed: {}\n", machine.weights_cache.from_cache,
                        machine.weights_cache.packed);
  }
  if (job.config.weights.random) {
    text +=
        fmt::format("{}: the texts mean nothing, nor does the acceptance rate; the times are those of the shapes {}\n",
                    label_of(job.config.weights), shapes(job.config));
  }
  if (job.config.acceptance.synthetic) {
    text += fmt::format(
        "{}: drafted tokens stand by chance and not by what the models say; the texts of speculative decoding mean "
        "nothing, its times are those of that rate\n",
        label_of(job.config.acceptance));
  }
  for (const InterconnectChoice& choice : job.config.interconnects) {
    if (choice) {
      text += fmt::format("Interconnect {}, on top of the {} transport: {}\n", label_of(choice), machine.transport,
                          choice->source);
    }
  }
  return text + "\n";
}

std::string late(const RunRecord& run) {
  return run.interconnect ? fmt::format("{} of {}", run.modelled.late, run.modelled.collectives) : "-";
}

/// One column a run.
std::string run_table(const JobRecord& job, const std::vector<MeasuredRun>& runs) {
  constexpr const char* kLabel = "{:<28}";
  constexpr const char* kCell = " {:>24}";
  const bool labelled = any_modelled(job);
  std::string heading = fmt::format(kLabel, "");
  std::string interconnects = heading;
  std::string late_counts = fmt::format(kLabel, "late collectives");
  std::string weights = fmt::format(kLabel, "weights");
  std::string acceptance = fmt::format(kLabel, "acceptance");
  for (const RunRecord& run : job.runs) {
    const bool drafts = run.method == name_of(Method::kSpeculative);
    heading += fmt::format(kCell, drafts ? fmt::format("{}, {}", run.method, drafts_text(run)) : run.method);
    interconnects += fmt::format(kCell, label_of(run.interconnect));
    late_counts += fmt::format(kCell, late(run));
    weights += fmt::format(kCell, fmt::format("random (seed {})", job.config.weights.seed));
    acceptance += fmt::format(kCell, drafts ? fmt::format("synthetic (alpha {})", job.config.acceptance.alpha) : "-");
  }
  std::string text = heading + "\n" + (labelled ? interconnects + "\n" : "") +
                     (job.config.weights.random ? weights + "\n" : "") +
                     (job.config.acceptance.synthetic ? acceptance + "\n" : "");
  for (const Row& row : rows()) {
    text += fmt::format(kLabel, row.label);
    for (const MeasuredRun& run : runs) text += fmt::format(kCell, row.cell(run.metrics));
    text += "\n";
  }
  if (job.config.placement == Placement::kDedicated) {
    text += fmt::format(kLabel, "loops drafted ahead");
    for (const MeasuredRun& run : runs) {
      const RunMetrics& of = run.metrics;
      text += fmt::format(kCell, of.drafted > 0 ? fmt::format("{} of {}", of.drafted_ahead, of.loops) : "-");
    }
    text += "\n";
  }
  return text + (labelled ? late_counts + "\n" : "");
}

/// How far the figures under a modelled interconnect are the model's, and how far those of a machine that cannot keep up with it.
std::string late_lines(const JobRecord& job) {
  std::string text;
  for (const InterconnectChoice& choice : job.config.interconnects) {
    ModelledTotals sum;
    for (const RunRecord& run : job.runs) {
      if (choice && name_of(run.interconnect) == name_of(choice)) sum += run.modelled;
    }
    if (sum.late > 0) {
      text += fmt::format(
          "\nLate, {}: {} of {} collectives, by {:.1f} ms together, where all should have taken {:.1f} ms.\n",
          label_of(choice), sum.late, sum.collectives, 1e3 * sum.late_seconds, 1e3 * sum.modelled_seconds);
    }
  }
  return text;
}

/// ", modelled NAME" where a report has such runs, and what the weights are where they are no checkpoint's.
std::string label_after(const JobRecord& job, const InterconnectChoice& choice) {
  const std::string forced = forced_label(job.config);
  return (any_modelled(job) ? ", " + label_of(choice) : "") + (forced.empty() ? "" : ", " + forced);
}

std::string split_table(const JobRecord& job, const RunRecord& run, const RunMetrics& m) {
  if (m.loops == 0) return {};
  return fmt::format("\nA loop of {} decoding{}, mean of {}:\n", run.method, label_after(job, run.interconnect),
                     m.loops) +
         split_line("draft", m, &LoopSplit::draft) + split_line("broadcast", m, &LoopSplit::broadcast) +
         split_line("score, compute", m, &LoopSplit::score_compute) +
         split_line("score, all-reduce", m, &LoopSplit::score_all_reduce) +
         split_line("decide", m, &LoopSplit::decide) + split_line("rest", m, &LoopSplit::rest) +
         split_line("total", m, &LoopSplit::total);
}

std::string comparison_lines(const std::string& label, const Comparison& c) {
  std::string text = fmt::format(
      "\nSpeed-up{}: {}; over loops that no limit or stop cut {}, theorem 3.8 predicts {} (measured/predicted {}).\n",
      label, figure(c.speedup), figure(c.full_speedup), figure(c.predicted_speedup), figure(c.measured_over_predicted));
  if (c.best_k) text += fmt::format("Best K by theorem 3.8: {}, predicted {}.\n", *c.best_k, figure(c.best_speedup));
  if (c.operations)
    text += fmt::format("Operations by theorem 3.11: {} times those of decoding alone.\n", figure(c.operations));
  if (c.identical) text += fmt::format("Greedy texts identical: {}.\n", *c.identical ? "yes" : "NO");
  return text;
}

/// What the theorems say of a speculative run with no other one beside it.
std::string theory_lines(const std::string& label, const Comparison& c) {
  if (!c.speedup_over_score) return {};
  std::string text = fmt::format(
      "\nWith nothing measured beside it{}: theorem 3.8 says {} times as fast as decoding alone, at c = {}, a drafted "
      "token over "
      "its own scoring pass",
      label, figure(c.speedup_over_score), figure(c.cost_over_score));
  if (c.operations) text += fmt::format("; operations by theorem 3.11: {} times", figure(c.operations));
  return text + ".\n";
}

}  // namespace

std::string explain(const RunMetrics& autoregressive, const RunMetrics& speculative, const Comparison& c) {
  if (!c.full_speedup || !c.loop_cost || !c.cost_ratio || !c.score_cost || !speculative.tokens_per_loop ||
      !speculative.acceptance_rate || !autoregressive.seconds_per_token) {
    return {};
  }
  const double k = static_cast<double>(speculative.drafted) / static_cast<double>(speculative.loops);
  return fmt::format(
      "Why: speculation was {} because a loop gives {:.2f} tokens (alpha {:.3f}) and costs {:.2f} times a token alone: "
      "drafting {:.1f} tokens a loop at c = {:.3f} each, and scoring K+1 rows at {:.2f} times the pass over one row.\n",
      *c.full_speedup > 1 ? "faster" : "not faster", *speculative.tokens_per_loop, *speculative.acceptance_rate,
      *c.loop_cost, k, *c.cost_ratio, *c.score_cost);
}

std::string report_text(const JobRecord& job) {
  const std::vector<MeasuredRun> runs = measure(job);
  std::string text = machine_lines(job) + run_table(job, runs);
  for (const MeasuredRun& run : runs) text += split_table(job, *run.record, run.metrics);
  text += late_lines(job);
  for (const InterconnectChoice& choice : job.config.interconnects) {
    const RunPair pair = runs_under(choice, runs);
    const Comparison comparison = compare(pair, job.config.texts_must_agree(), job.machine.operations_ratio);
    if (pair.autoregressive == nullptr) text += theory_lines(label_after(job, choice), comparison);
    if (pair.autoregressive != nullptr && pair.speculative != nullptr) {
      text += comparison_lines(label_after(job, choice), comparison) +
              explain(pair.autoregressive->metrics, pair.speculative->metrics, comparison);
    }
  }
  if (!job.error.empty()) text += fmt::format("\nEnded early: {}\n", job.error);
  return text;
}

}  // namespace specdec
