#include "runtime/prediction_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/units.h"

namespace specdec {
namespace {

using nlohmann::json;

json simulated_json(const Simulated& of, std::int64_t loops) {
  return {{"loops", loops},
          {"ms_per_token", of.seconds_per_token * kMsPerSecond},
          {"p50_ms", of.token.p50 * kMsPerSecond},
          {"p90_ms", of.token.p90 * kMsPerSecond},
          {"p99_ms", of.token.p99 * kMsPerSecond},
          {"loop_p50_ms", of.loop.p50 * kMsPerSecond},
          {"loop_p90_ms", of.loop.p90 * kMsPerSecond},
          {"loop_p99_ms", of.loop.p99 * kMsPerSecond}};
}

}  // namespace

json split_json(const LoopTime& loop) {
  return {{"draft", loop.draft * kMsPerSecond},
          {"broadcast", loop.broadcast * kMsPerSecond},
          {"score", loop.score * kMsPerSecond},
          {"rest", loop.rest * kMsPerSecond}};
}

std::string prediction_table(const PredictionHeader& header, std::span<const Prediction> predictions) {
  const PredictedJob& job = *header.job;
  std::string text = fmt::format("Predicted, not measured: {} with draft {} ({}) on {}, {} rank{}, alpha {}\n",
                                 header.target, header.draft, name_of(job.placement), header.hardware->name, job.ranks,
                                 job.ranks == 1 ? "" : "s", header.alpha);
  text += fmt::format("{}\n\n", header.hardware->source);
  text +=
      fmt::format("{:>4} {:>12} {:>10} {:>12} {:>9} {:>8} {:>8} {:>8}   {:>7} {:>9} {:>7} {:>6}\n", "K", "ms a token",
                  "ms a loop", "tokens/loop", "speed-up", "P50", "P90", "P99", "draft", "broadcast", "score", "rest");
  const std::int64_t best = best_k(predictions);
  for (const Prediction& of : predictions) {
    const Percentiles& token = of.token.percentiles;
    text += fmt::format(
        "{:>4} {:>12.3f} {:>10.3f} {:>12.3f} {:>9.3f} {:>8.3f} {:>8.3f} {:>8.3f}   {:>7.3f} {:>9.3f} {:>7.3f} "
        "{:>6.3f}{}\n",
        of.k, of.token.mean * kMsPerSecond, of.loop.total() * kMsPerSecond, of.tokens_per_loop, of.speedup,
        token.p50 * kMsPerSecond, token.p90 * kMsPerSecond, token.p99 * kMsPerSecond, of.loop.draft * kMsPerSecond,
        of.loop.broadcast * kMsPerSecond, of.loop.score * kMsPerSecond, of.loop.rest * kMsPerSecond,
        of.k == best ? "  best" : "");
  }
  if (!header.simulated.empty()) {
    text += fmt::format("\nSimulated, {} loops each, with the jitter and the stragglers that are described\n\n",
                        header.loops);
    text +=
        fmt::format("{:>4} {:>12} {:>24} {:>27}\n", "K", "ms a token", "token P50 / P90 / P99", "loop P50 / P90 / P99");
    const auto three = [](const Percentiles& of) {
      return fmt::format("{:.3f} / {:.3f} / {:.3f}", of.p50 * kMsPerSecond, of.p90 * kMsPerSecond,
                         of.p99 * kMsPerSecond);
    };
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      const Simulated& of = header.simulated[i];
      text += fmt::format("{:>4} {:>12.3f} {:>24} {:>27}\n", predictions[i].k, of.seconds_per_token * kMsPerSecond,
                          three(of.token), three(of.loop));
    }
  }
  text += "\nP50, P90, P99: ms of a token, a loop's time spread evenly over its tokens; draft to rest: ms of a loop\n";
  return text;
}

nlohmann::json prediction_json(const PredictionHeader& header, std::span<const Prediction> predictions) {
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const Prediction& of = predictions[i];
    const Percentiles& token = of.token.percentiles;
    rows.push_back(
        {{"k", of.k},
         {"ms_per_token", of.token.mean * kMsPerSecond},
         {"ms_per_loop", of.loop.total() * kMsPerSecond},
         {"tokens_per_loop", of.tokens_per_loop},
         {"speedup", of.speedup},
         {"p50_ms", token.p50 * kMsPerSecond},
         {"p90_ms", token.p90 * kMsPerSecond},
         {"p99_ms", token.p99 * kMsPerSecond},
         {"variance_ms2", of.token.variance * kMsPerSecond * kMsPerSecond},
         {"split_ms", split_json(of.loop)},
         {"simulated", header.simulated.empty() ? json() : simulated_json(header.simulated[i], header.loops)}});
  }
  return {{"schema", "specdec.prediction"},
          {"version", 1},
          {"program", header.version},
          {"kind", "predicted"},
          {"hardware", {{"name", header.hardware->name}, {"source", header.hardware->source}}},
          {"target", header.target},
          {"draft", header.draft},
          {"placement", name_of(header.job->placement)},
          {"ranks", header.job->ranks},
          {"context", header.job->context},
          {"alpha", header.alpha},
          {"rows", rows},
          {"best_k", best_k(predictions)}};
}

}  // namespace specdec
