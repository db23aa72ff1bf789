#include "runtime/study_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/nullable.h"
#include "runtime/prediction_text.h"
#include "runtime/published.h"
#include "runtime/theory.h"
#include "runtime/units.h"

namespace specdec {
namespace {

using nlohmann::json;

/// The labels of what was forced, each once; numbered where there are several.
class Forced {
 public:
  Forced(const std::vector<StudyPoint>& points, const std::vector<PointFigures>& figures) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::string& label = figures[i].forced;
      if (points[i].kind != PointKind::kDecode || label.empty() || std::ranges::find(labels_, label) != labels_.end()) {
        continue;
      }
      labels_.push_back(label);
    }
  }
  /// What follows a point's kind.
  std::string mark(const PointFigures& of) const { return of.forced.empty() ? "" : ", " + name(of.forced); }
  std::string text() const {
    if (labels_.empty()) return "";
    std::string text = "\nForced, and not what models say: ";
    for (const std::string& label : labels_) {
      if (label != labels_.front()) text += "; ";
      if (labels_.size() > 1) text += name(label) + ": ";
      text += label;
    }
    return text + ".\n";
  }

 private:
  std::string name(const std::string& label) const {
    if (labels_.size() == 1) return "forced";
    return fmt::format("forced {}", std::ranges::find(labels_, label) - labels_.begin() + 1);
  }

  std::vector<std::string> labels_;
};

std::string kind_of(const PointFigures& figures) {
  return figures.modelled ? "measured under a modelled interconnect" : "measured";
}

json band_json(const Band& of) { return {{"mean", of.mean}, {"p10", of.p10}, {"p90", of.p90}}; }

json point_json(const StudyPoint& point, const PointFigures& f) {
  json out = {{"ranks", point.ranks},
              {"k", point.k},
              {"draft_length", name_of(point.config.decode.draft_length)},
              {"interconnect", point.interconnect},
              {"placement", name_of(point.placement)},
              {"models", point.models},
              {"method", point.method},
              {"label", point.label()},
              {"kind", kind_of(f)},
              {"forced", f.forced},
              {"calibrates", point.calibrates},
              {"finished", f.finished},
              {"failed", f.failed},
              {"error", f.error.empty() ? json() : json(f.error)}};
  if (f.finished == 0) return out;
  json split = json::object();
  for (const auto& [part, ms] : f.split_ms) split[part] = ms;
  out.update({{"tokens", f.tokens},
              {"ms_per_token", band_json(f.ms_per_token)},
              {"undisturbed_ms_per_token", nullable(f.undisturbed_ms_per_token)},
              {"ms_per_loop", band_json(f.ms_per_loop)},
              {"efficiency", band_json(f.efficiency)},
              {"token_ms", {{"p50", f.token_ms.p50}, {"p90", f.token_ms.p90}, {"p99", f.token_ms.p99}}},
              {"alpha", nullable(f.alpha)},
              {"accepted_over_reached", nullable(f.stood)},
              {"tokens_per_loop", nullable(f.tokens_per_loop)},
              {"expected_tokens_per_loop", nullable(f.expected_tokens_per_loop)},
              {"cost_ratio", nullable(f.cost_ratio)},
              {"speedup", nullable(f.speedup)},
              {"theorem_3_8_speedup", nullable(f.theory_speedup)},
              {"theorem_3_11_operations", nullable(f.theory_operations)},
              {"late_share", f.late_share},
              {"split_ms", split},
              {"predicted", nullptr}});
  if (f.predicted) {
    const Prediction& of = *f.predicted;
    out["predicted"] = {{"ms_per_token", kMsPerSecond * of.token.mean},
                        {"ms_per_loop", kMsPerSecond * of.loop.total()},
                        {"tokens_per_loop", of.tokens_per_loop},
                        {"speedup", of.speedup},
                        {"split_ms", split_json(of.loop)},
                        {"p50_ms", kMsPerSecond * of.token.percentiles.p50},
                        {"p90_ms", kMsPerSecond * of.token.percentiles.p90},
                        {"p99_ms", kMsPerSecond * of.token.percentiles.p99}};
  }
  return out;
}

/// Theorem 3.8 at its best K, over alpha and c: where speculation pays.
json region_json() {
  constexpr int kSteps = 60;
  constexpr double kLeastCost = 0.005;
  json out = {{"alpha", json::array()}, {"cost_ratio", json::array()}, {"speedup", json::array()}};
  for (int i = 0; i < kSteps; ++i) {
    out["alpha"].push_back(static_cast<double>(i) / kSteps);
    out["cost_ratio"].push_back(kLeastCost * std::pow(1.5 / kLeastCost, static_cast<double>(i) / (kSteps - 1)));
  }
  for (const json& alpha : out["alpha"]) {
    json row = json::array();
    for (const json& cost : out["cost_ratio"]) {
      const std::int64_t k = best_k(alpha.get<double>(), cost.get<double>(), kMaxBestK);
      row.push_back(speedup_factor(alpha.get<double>(), k, cost.get<double>()));
    }
    out["speedup"].push_back(std::move(row));
  }
  return out;
}

json published_json(const Study& study) {
  if (study.published.empty()) return nullptr;
  const Published of = load_published(study.published, study.name + ": published");
  json table = json::array();
  for (const Published::Line& line : of.table) {
    table.push_back({{"task", line.task},
                     {"k", line.k},
                     {"ms_alone", line.ms_alone},
                     {"ms", line.ms},
                     {"speedup", line.speedup},
                     {"alpha", nullable(line.alpha)},
                     {"predicted", nullptr}});
  }
  json predicted;
  if (!of.job.config.empty()) {
    const PublishedPrediction told = predict_published(of, study.name + ": published");
    predicted = {{"hardware", of.job.hardware},    {"config", of.job.config},
                 {"fit_k", of.job.fit_k},          {"alpha", told.alpha},
                 {"ms_128", told.ms_128},          {"efficiency", told.efficiency},
                 {"ms_per_loop", told.ms_per_loop}};
    for (std::size_t i = 0; i < told.table.size(); ++i) {
      if (!told.table[i]) continue;
      const PublishedPrediction::Line& line = *told.table[i];
      table[i]["predicted"] = {{"ms_alone", line.ms_alone}, {"ms", line.ms}, {"speedup", line.speedup}};
    }
  }
  return {{"title", of.title},
          {"source", of.source},
          {"k", of.k},
          {"ms_128", of.ms_128},
          {"efficiency", of.efficiency},
          {"ms_per_loop", of.ms_per_loop},
          {"table", std::move(table)},
          {"predicted", std::move(predicted)}};
}

std::string percent(const std::optional<double>& share) { return share ? fmt::format("{:+.1f} %", 100 * *share) : "-"; }

std::string cell(const std::optional<double>& value, const char* format = "{:.3f}") {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

json pace_json(const std::optional<Pace>& pace) {
  if (!pace) return {};
  return {{"parts", pace->parts}, {"least", pace->least}, {"most", pace->most}};
}

}  // namespace

json summary_json(const Study& study, const std::vector<StudyPoint>& points, const StudySummary& summary) {
  json rows = json::array();
  json failed = json::array();
  json errors = json::array();
  for (const auto& [ranks, of] : summary.errors) {
    json by_models = json::array();
    for (const auto& [which, part] : summary.errors_of_models) {
      if (which.first != ranks) continue;
      by_models.push_back(
          {{"models", which.second}, {"points", part.points}, {"mean", part.mean}, {"worst", part.worst}});
    }
    json error = {{"ranks", ranks},
                  {"models", std::move(by_models)},
                  {"points", of.points},
                  {"mean", of.mean},
                  {"worst", of.worst}};
    const auto add = [&](const char* name, const std::map<int, Deviations>& by_ranks) {
      const auto found = by_ranks.find(ranks);
      const bool known = found != by_ranks.end();
      error[fmt::format("{}_mean", name)] = known ? json(found->second.mean) : json();
      error[fmt::format("{}_worst", name)] = known ? json(found->second.worst) : json();
    };
    add("halves", summary.halves);
    add("disturbed", summary.disturbed);
    errors.push_back(std::move(error));
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].kind == PointKind::kDecode) rows.push_back(point_json(points[i], summary.points[i]));
    if (summary.points[i].failed > 0) {
      failed.push_back(
          {{"label", points[i].label()}, {"jobs", summary.points[i].failed}, {"error", summary.points[i].error}});
    }
  }
  return {{"schema", "specdec.study"},
          {"version", 2},
          {"title", study.title},
          {"name", study.name},
          {"config", study.config},
          {"study", study.text},
          {"repeats", study.repeats},
          {"hardware", study.hardware.empty() ? json() : json(study.hardware)},
          {"program", summary.program},
          {"machine", summary.machine},
          {"places", summary.places},
          {"pace", pace_json(summary.pace)},
          {"points", rows},
          {"failed", failed},
          {"all_reduces", summary.all_reduces},
          {"published", published_json(study)},
          {"region", region_json()},
          {"errors", errors}};
}

std::string summary_csv(const std::vector<StudyPoint>& points, const StudySummary& summary) {
  std::string text =
      "ranks,k,interconnect,placement,models,method,kind,forced,finished,failed,ms_per_token,ms_per_token_p10,ms_per_"
      "token_p90,"
      "ms_per_loop,tokens_per_loop,expected_tokens_per_loop,alpha,accepted_over_reached,cost_ratio,speedup,theorem_3_8_"
      "speedup,"
      "theorem_3_11_operations,token_p50_ms,token_p90_ms,"
      "token_p99_ms,late_share,undisturbed_ms_per_token,predicted_ms_per_token,predicted_speedup,error\n";
  const auto quoted = [](std::string words) {
    for (std::size_t at = 0; (at = words.find('"', at)) != std::string::npos; at += 2) words.insert(at, 1, '"');
    return '"' + words + '"';
  };
  const auto put = [](const std::optional<double>& value) { return value ? fmt::format(",{}", *value) : ","; };
  for (std::size_t i = 0; i < points.size(); ++i) {
    const StudyPoint& p = points[i];
    const PointFigures& f = summary.points[i];
    if (p.kind != PointKind::kDecode) continue;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}", p.ranks, p.k, p.interconnect, name_of(p.placement), p.models,
                        p.method, kind_of(f), quoted(f.forced), f.finished, f.failed);
    const auto of = [&](double value) { return f.finished > 0 ? std::optional(value) : std::nullopt; };
    for (const std::optional<double>& value :
         {of(f.ms_per_token.mean), of(f.ms_per_token.p10), of(f.ms_per_token.p90), of(f.ms_per_loop.mean),
          f.tokens_per_loop, f.expected_tokens_per_loop, f.alpha, f.stood, f.cost_ratio, f.speedup, f.theory_speedup,
          f.theory_operations, of(f.token_ms.p50), of(f.token_ms.p90), of(f.token_ms.p99), of(f.late_share),
          f.undisturbed_ms_per_token}) {
      text += put(value);
    }
    text += put(f.predicted ? std::optional(kMsPerSecond * f.predicted->token.mean) : std::nullopt);
    text += put(f.predicted ? std::optional(f.predicted->speedup) : std::nullopt);
    text += ',' + (f.error.empty() ? "" : quoted(f.error)) + '\n';
  }
  return text;
}

std::string summary_text(const Study& study, const std::vector<StudyPoint>& points, const StudySummary& summary) {
  std::string text = fmt::format("# {}\n\n", study.title);
  if (!summary.program.empty()) text += fmt::format("{}\n\n", summary.program.substr(0, summary.program.find('\n')));
  const bool predicts = !study.hardware.empty();
  text +=
      "| ranks | interconnect | placement | models | method | K | kind | ms a token | P10 to P90 | tokens a loop | eq. "
      "1 | alpha | "
      "c | speed-up | theorem 3.8 | operations, theorem 3.11 |";
  text += predicts ? " undisturbed ms a token | *predicted* | error |\n" : "\n";
  const int columns = predicts ? 19 : 16;
  for (int column = 0; column < columns; ++column) text += "|---";
  text += "|\n";
  std::string failures;
  const Forced forced(points, summary.points);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const StudyPoint& p = points[i];
    const PointFigures& f = summary.points[i];
    if (f.failed > 0) failures += fmt::format("- {}: {} of its jobs failed: {}\n", p.label(), f.failed, f.error);
    if (p.kind != PointKind::kDecode) continue;
    text += fmt::format("| {} | {} | {} | {} | {} | {} |", p.ranks, p.interconnect, name_of(p.placement), p.models,
                        p.method, p.k);
    if (f.finished == 0) {
      constexpr int kBefore = 7;
      text += (f.failed > 0 ? " failed |" : " not run |") +
              std::string(static_cast<std::size_t>(columns - kBefore), '|') + "\n";
      continue;
    }
    text += fmt::format(" {}{} | {:.3f} | {:.3f} to {:.3f} | {} | {} | {} | {} | {} | {} | {} |", kind_of(f),
                        forced.mark(f), f.ms_per_token.mean, f.ms_per_token.p10, f.ms_per_token.p90,
                        cell(f.tokens_per_loop, "{:.2f}"), cell(f.expected_tokens_per_loop, "{:.2f}"), cell(f.alpha),
                        cell(f.cost_ratio), cell(f.speedup, "{:.2f}"), cell(f.theory_speedup, "{:.2f}"),
                        cell(f.theory_operations, "{:.2f}"));
    if (predicts) {
      text += fmt::format(" {} | {} | {} |", cell(f.undisturbed_ms_per_token),
                          cell(f.predicted ? std::optional(kMsPerSecond * f.predicted->token.mean) : std::nullopt),
                          percent(prediction_error(f)));
    }
    text += "\n";
  }
  text += forced.text();
  if (!summary.errors.empty()) {
    text += fmt::format(
        "\nPrediction ({}) against what each point takes undisturbed (its loops in the quicker half of its jobs):\n\n",
        study.hardware);
    for (const auto& [ranks, of] : summary.errors) {
      text += fmt::format("- {} rank{}: mean of the errors {:.1f} %, worst {:.1f} %, {} points", ranks,
                          ranks == 1 ? "" : "s", 100 * of.mean, 100 * of.worst, of.points);
      if (const auto halves = summary.halves.find(ranks); halves != summary.halves.end()) {
        text += fmt::format("; every other job of these points differs from the rest by {:.1f} %, at worst {:.1f} %",
                            100 * halves->second.mean, 100 * halves->second.worst);
      }
      if (const auto disturbed = summary.disturbed.find(ranks); disturbed != summary.disturbed.end()) {
        text += fmt::format("; over all jobs and loops a token takes {:.1f} % longer in the mean, at most {:.1f} %",
                            100 * disturbed->second.mean, 100 * disturbed->second.worst);
      }
      text += "\n";
      std::string by_models;
      int several = 0;
      for (const auto& [which, part] : summary.errors_of_models) {
        if (which.first != ranks) continue;
        ++several;
        by_models += fmt::format("  - {}: {:.1f} %, worst {:.1f} %, {} points\n", which.second, 100 * part.mean,
                                 100 * part.worst, part.points);
      }
      if (several > 1) text += by_models;
    }
  }
  if (summary.pace) {
    text += fmt::format(
        "\nThe machine's pace: jobs took {:.2f} to {:.2f} of what their points take undisturbed, in the median of "
        "each of {} parts of the study in time.\n",
        summary.pace->least, summary.pace->most, summary.pace->parts);
  }
  if (!failures.empty()) text += "\nFailed:\n\n" + failures;
  return text;
}

}  // namespace specdec
