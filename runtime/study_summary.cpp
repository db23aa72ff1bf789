#include "runtime/study_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "backend/error.h"
#include "runtime/bench_results.h"
#include "runtime/forced_label.h"
#include "runtime/hardware_load.h"
#include "runtime/interconnect_load.h"
#include "runtime/pass_times_json.h"
#include "runtime/pass_work.h"
#include "runtime/predicted_job.h"
#include "runtime/theory.h"
#include "runtime/units.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kSplit[] = {"draft", "broadcast", "score_compute", "score_all_reduce", "decide", "rest"};

/// Sums over the jobs of a point.
struct JobSums {
  double decode_ms = 0;
  double loops = 0;
  double full_tokens = 0;
  double full_drafted = 0;
  double beta = 0;
  double reached = 0;
  double accepted = 0;
  double drafted = 0;
  double draft_ms = 0;
  double expected = 0;
  double late = 0;
  double collectives = 0;
  double context = 0;
  double prompts = 0;
  Percentiles token_ms;
  std::map<std::string, double> split;
  // Of each job, its loops being as the median one of them.
  std::vector<double> job_loop;
  std::vector<Percentiles> job_loop_ms;
  std::map<std::string, std::vector<double>> job_split;
  std::vector<double> per_token;
  std::vector<double> per_loop;
  std::vector<double> efficiency;
};

double number(const json& value) { return value.is_number() ? value.get<double>() : 0; }

void add(JobSums& sums, PointFigures& figures, const json& row, std::int64_t k) {
  const json& run = row.at("run");
  const json& metrics = run.at("metrics");
  ++figures.finished;
  figures.tokens += metrics.at("tokens").get<std::int64_t>();
  figures.full_loops += metrics.at("full_loops").get<std::int64_t>();
  figures.modelled = row.at("modelled").get<bool>();
  figures.forced = row.at("forced").get<std::string>();
  figures.backend = row.at("machine").value("backend", "");
  const double loops = number(metrics.at("loops"));
  const double full_loops = number(metrics.at("full_loops"));
  sums.loops += loops;
  sums.decode_ms += kMsPerSecond * number(metrics.at("decode_seconds"));
  sums.full_drafted += number(metrics.at("full_loops_drafted"));
  sums.full_tokens += full_loops * number(metrics.at("tokens_per_loop"));
  sums.expected += full_loops * number(metrics.at("expected_tokens_per_loop"));
  sums.reached += number(metrics.at("reached"));
  sums.accepted += number(metrics.at("accepted"));
  sums.beta += number(metrics.at("reached")) * number(metrics.at("acceptance_rate"));
  sums.drafted += number(metrics.at("drafted"));
  sums.draft_ms += number(metrics.at("drafted")) * number(metrics.at("draft_ms_per_token"));
  if (run.at("collectives").is_object()) {
    sums.late += number(run["collectives"].at("late"));
    sums.collectives += number(run["collectives"].at("total"));
  }
  const json& token = metrics.at("token_ms");
  if (token.is_object()) {
    sums.token_ms.p50 += number(token.at("p50"));
    sums.token_ms.p90 += number(token.at("p90"));
    sums.token_ms.p99 += number(token.at("p99"));
  }
  const double loop_ms = kMsPerSecond * number(metrics.at("decode_seconds")) / std::max(loops, 1.0);
  const json& of_loops = metrics.at("loop_ms");
  if (of_loops.is_object()) {
    sums.job_loop_ms.push_back({number(of_loops.at("p50")), number(of_loops.at("p90")), number(of_loops.at("p99"))});
  }
  const double typical = of_loops.is_object() && loop_ms > 0 ? number(of_loops.at("p50")) / loop_ms : 1;
  sums.job_loop.push_back(typical * loop_ms);
  for (const char* part : kSplit) {
    const double ms = kMsPerSecond * number(metrics.at("split").at(part).at("seconds"));
    sums.split[part] += ms;
    sums.job_split[part].push_back(typical * ms / std::max(loops, 1.0));
  }
  for (const json& prompt : run.at("prompts")) {
    const double tokens = number(prompt.at("tokens"));
    const double count = number(prompt.at("loops"));
    if (tokens == 0) continue;
    sums.per_token.push_back(number(prompt.at("decode_ms")) / tokens);
    sums.per_loop.push_back(number(prompt.at("decode_ms")) / count);
    sums.efficiency.push_back(tokens / count / static_cast<double>(k + 1));
    sums.context += number(prompt.at("prompt_tokens")) + tokens / 2;
    ++sums.prompts;
  }
}

std::optional<double> halves_of(const std::vector<double>& jobs) {
  constexpr std::size_t kLeast = 4;
  if (jobs.size() < kLeast) return std::nullopt;
  std::vector<double> halves[2];
  for (std::size_t i = 0; i < jobs.size(); ++i) halves[i % 2].push_back(jobs[i]);
  return ratio(quicker_half(halves[1]), quicker_half(halves[0]));
}

Percentiles typical(const std::vector<Percentiles>& of_jobs) {
  const auto middle = [&](double Percentiles::*which) {
    std::vector<double> values;
    for (const Percentiles& job : of_jobs) values.push_back(job.*which);
    return midmean(values);
  };
  return {.p50 = middle(&Percentiles::p50), .p90 = middle(&Percentiles::p90), .p99 = middle(&Percentiles::p99)};
}

/// In all of its loops.
bool has_one_k(const StudyPoint& point) {
  return point.k == 0 || point.config.decode.draft_length == DraftLengthRule::kFixed;
}

void fill(PointFigures& figures, JobSums& sums, const StudyPoint& point) {
  const double tokens = static_cast<double>(figures.tokens);
  if (figures.finished == 0 || tokens == 0) return;
  const double full_loops = static_cast<double>(figures.full_loops);
  figures.ms_per_token = band(std::move(sums.per_token), sums.decode_ms / tokens);
  figures.ms_per_loop = band(std::move(sums.per_loop), sums.decode_ms / sums.loops);
  figures.tokens_per_loop = ratio(sums.full_tokens, full_loops);
  figures.efficiency =
      band(std::move(sums.efficiency), figures.tokens_per_loop.value_or(0) / static_cast<double>(point.k + 1));
  const double jobs = figures.finished;
  figures.token_ms = {
      .p50 = sums.token_ms.p50 / jobs, .p90 = sums.token_ms.p90 / jobs, .p99 = sums.token_ms.p99 / jobs};
  figures.alpha = ratio(sums.beta, sums.reached);
  figures.stood = ratio(sums.accepted, sums.reached);
  if (figures.alpha) figures.expected_tokens_per_loop = ratio(sums.expected, full_loops);
  figures.draft_ms_per_token = ratio(sums.draft_ms, sums.drafted);
  figures.drafted_per_loop = sums.drafted / sums.loops;
  figures.drafted_per_full_loop = ratio(sums.full_drafted, full_loops);
  figures.context = sums.prompts > 0 ? sums.context / sums.prompts : 0;
  figures.late_share = ratio(sums.late, sums.collectives).value_or(0);
  // Parts of the same jobs: with several ranks what computes longer waits less, and a mean of the quicker half of each alone would be less than the loop.
  const std::vector<double> shares = quicker_half_shares(sums.job_loop);
  const auto undisturbed = [&](const std::vector<double>& of_jobs) {
    return std::inner_product(of_jobs.begin(), of_jobs.end(), shares.begin(), 0.0);
  };
  for (const char* part : kSplit) {
    figures.split_ms.emplace_back(part, sums.split[part] / sums.loops);
    figures.undisturbed_split_ms.emplace_back(part, undisturbed(sums.job_split[part]));
  }
  if (has_one_k(point)) {
    figures.halves = halves_of(sums.job_loop);
    figures.undisturbed_ms_per_token = undisturbed(sums.job_loop) * sums.loops / tokens;
    figures.disturbed = figures.ms_per_token.mean / *figures.undisturbed_ms_per_token - 1;
  }
  if (!sums.job_loop_ms.empty()) figures.typical_loop_ms = typical(sums.job_loop_ms);
}

/// Decoding alone beside a point: of its own method where that has a K of 0, else of any.
const PointFigures* alone(const std::vector<StudyPoint>& points, const std::vector<PointFigures>& figures,
                          const StudyPoint& of) {
  const PointFigures* found = nullptr;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const StudyPoint& point = points[i];
    if (point.kind != PointKind::kDecode || point.k != 0 || point.ranks != of.ranks ||
        point.interconnect != of.interconnect || point.models != of.models || figures[i].finished == 0) {
      continue;
    }
    if (found == nullptr || point.method == of.method) found = &figures[i];
  }
  return found;
}

std::optional<Prediction> predict_point(const Hardware& described, const StudyPoint& point,
                                        const PointFigures& figures) {
  const RunConfig& config = point.config;
  if (!has_one_k(point) || figures.finished == 0 || point.ranks > described.ranks) {
    return std::nullopt;
  }
  Hardware hardware = described;
  if (config.interconnects.front()) hardware.interconnect = *config.interconnects.front();
  PredictedJob job = predicted_job(config, point.ranks);
  job.placement = point.placement;
  job.context = static_cast<std::int64_t>(figures.context);
  const std::int64_t ks[] = {point.k};
  Prediction of = predict(hardware, job, figures.stood.value_or(0), ks).front();
  return of;
}

std::optional<Percentiles> in_seconds(const std::optional<Percentiles>& ms) {
  if (!ms) return std::nullopt;
  return Percentiles{.p50 = ms->p50 / kMsPerSecond, .p90 = ms->p90 / kMsPerSecond, .p99 = ms->p99 / kMsPerSecond};
}

/// A loop of a point's jobs, in seconds, as it is undisturbed.
CalibrationLoop loop_of(const PointFigures& figures) {
  CalibrationLoop loop{.drafted = figures.drafted_per_loop, .alpha = figures.stood.value_or(0)};
  for (const auto& [part, ms] : figures.undisturbed_split_ms) {
    const double seconds = ms / kMsPerSecond;
    if (part == "draft") loop.draft = seconds;
    if (part == "broadcast") loop.broadcast = seconds;
    if (part == "score_compute") loop.compute = seconds;
    if (part == "score_all_reduce") loop.all_reduce = seconds;
    if (part == "decide" || part == "rest") loop.rest += seconds;
  }
  return loop;
}

/// Of so many ranks.
PassTimes undisturbed_passes(const std::vector<json>& jobs, int ranks) {
  std::vector<PassTimes> all;
  for (const json& job : jobs) all.push_back(pass_times_from_json(job, ranks));
  const auto of_all = [&](auto value_of) {
    std::vector<double> values;
    for (const PassTimes& times : all) values.push_back(value_of(times));
    return values;
  };
  const auto one = [&](auto time_of) { return quicker_half(of_all(time_of)); };
  // What a job has as the difference of two times may be disturbed either way.
  const auto difference = [&](auto difference_of) { return midmean(of_all(difference_of)); };
  const auto by_rows = [&](auto of_row, auto series_of) {
    std::size_t rows = series_of(all.front()).size();
    for (const PassTimes& times : all) rows = std::min(rows, series_of(times).size());
    std::vector<double> seconds;
    for (std::size_t i = 0; i < rows; ++i)
      seconds.push_back(of_row([&](const PassTimes& of) { return series_of(of)[i]; }));
    return seconds;
  };
  using T = const PassTimes&;
  return {.target = by_rows(
              one, [](T of) -> const auto& { return of.target; }),
          .target_after_smaller = by_rows(
              one, [](T of) -> const auto& { return of.target_after_smaller; }),
          .whole_target = one([](T of) { return of.whole_target; }),
          .draft = by_rows(
              one, [](T of) -> const auto& { return of.draft; }),
          .draft_after_target = one([](T of) { return of.draft_after_target; }),
          .in_own_cache = one([](T of) { return of.in_own_cache; }),
          .filling_own_cache = one([](T of) { return of.filling_own_cache; }),
          .own_cache_bytes = all.front().own_cache_bytes,
          .layer = one([](T of) { return of.layer; }),
          .beside_products = one([](T of) { return of.beside_products; }),
          .after_more_keys = by_rows(
              difference, [](T of) -> const auto& { return of.after_more_keys; }),
          .more_keys = all.front().more_keys,
          .beside = {.loop = one([](T of) { return of.beside.loop; }),
                     .pass = one([](T of) { return of.beside.pass; }),
                     .drafted = difference([](T of) { return of.beside.drafted; }),
                     .accepted = difference([](T of) { return of.beside.accepted; }),
                     .scored = by_rows(
                         one, [](T of) -> const auto& { return of.beside.scored; })}};
}

/// Of each payload, by all jobs' medians.
std::vector<TimedAllReduce> undisturbed_all_reduces(const std::vector<json>& jobs) {
  std::map<double, std::vector<double>> seconds;
  for (const json& rows : jobs) {
    for (const json& row : rows) {
      if (row.at("transport") == kBaselineTransport) continue;
      seconds[row.at("bytes").get<double>()].push_back(row.at("p50_us").get<double>() * kMicro);
    }
  }
  std::vector<TimedAllReduce> undisturbed;
  for (const auto& [bytes, of_jobs] : seconds) undisturbed.push_back({bytes, quicker_half(of_jobs)});
  return undisturbed;
}

/// "node1, node2 (AMD EPYC 7713)".
std::string place_of(const json& machine) {
  const auto names = [&](const char* key) {
    return fmt::format("{}", fmt::join(machine.value(key, std::vector<std::string>{}), ", "));
  };
  return fmt::format("{} ({})", names("hosts"), names("cpus"));
}

/// What a calibration has beside jobs of the pair.
struct TimedAlone {
  std::vector<json> passes;
  std::map<int, std::vector<json>> links;  ///< by ranks
};

/// A description for each rank count whose two points have run.
void calibrate_points(StudySummary& summary, const Study& study, const std::vector<StudyPoint>& points,
                      TimedAlone timed) {
  for (const int ranks : study.ranks) {
    const auto at = [&](std::int64_t k) {
      return static_cast<std::size_t>(std::ranges::find_if(points,
                                                           [&](const StudyPoint& point) {
                                                             return point.calibrates && point.ranks == ranks &&
                                                                    point.k == k;
                                                           }) -
                                      points.begin());
    };
    const std::size_t alone = at(0);
    const std::size_t drafts = at(Study::kCalibrationK);
    if (summary.points[alone].finished == 0 || summary.points[drafts].finished == 0) continue;
    const RunConfig& config = points[alone].config;
    Hardware hardware = calibrate({.target = load_model_config(config.target),
                                   .draft = load_model_config(config.draft),
                                   .target_dtype = config.dtype,
                                   .draft_dtype = config.type_of_draft(),
                                   .ranks = ranks,
                                   .context = summary.points[alone].context,
                                   .whole_rows = config.decode.sampling.truncates(),
                                   .passes = undisturbed_passes(timed.passes, ranks),
                                   .alone = loop_of(summary.points[alone]),
                                   .drafts = loop_of(summary.points[drafts]),
                                   .loops = in_seconds(summary.points[alone].typical_loop_ms),
                                   .all_reduces = undisturbed_all_reduces(timed.links[ranks])});
    hardware.name = fmt::format("{}-{}", study.name, ranks);
    const std::string forced = forced_label(config);
    hardware.source = fmt::format("calibrated with {} on {}{}", study.config, summary.points[alone].backend,
                                  forced.empty() ? "" : "; " + forced);
    hardware.interconnect.name = hardware.name;
    hardware.interconnect.source = hardware.source;
    summary.calibrated.emplace(ranks, std::move(hardware));
  }
}

std::optional<Hardware> hardware_of(const StudySummary& summary, const Study& study, int ranks) {
  if (!study.calibrates()) return study.hardware_of(ranks);
  const auto at = summary.calibrated.find(ranks);
  return at == summary.calibrated.end() ? std::nullopt : std::optional(at->second);
}

void add_theory(PointFigures& figures, const StudyPoint& point) {
  const RunConfig& config = point.config;
  if (!figures.expected_tokens_per_loop || config.draft.empty()) return;
  const double k = figures.drafted_per_full_loop.value_or(static_cast<double>(point.k));
  const double tokens = *figures.expected_tokens_per_loop;
  if (figures.cost_ratio) figures.theory_speedup = speedup_of_loops(tokens, k, *figures.cost_ratio);
  const double c_hat = operations_ratio(load_model_config(config.draft), load_model_config(config.target));
  figures.theory_operations = operations_of_loops(tokens, k, c_hat);
}

/// Speed-ups, predictions and their errors, once all points have their figures.
void compare_points(StudySummary& summary, const Study& study, const std::vector<StudyPoint>& points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    PointFigures& figures = summary.points[i];
    if (points[i].kind != PointKind::kDecode || figures.finished == 0) continue;
    if (const PointFigures* const base = alone(points, summary.points, points[i])) {
      figures.speedup = ratio(base->ms_per_token.mean, figures.ms_per_token.mean);
      if (figures.draft_ms_per_token) figures.cost_ratio = ratio(*figures.draft_ms_per_token, base->ms_per_token.mean);
    }
    if (points[i].k > 0) add_theory(figures, points[i]);
    const std::optional<Hardware> hardware = hardware_of(summary, study, points[i].ranks);
    if (!hardware) continue;
    figures.predicted = predict_point(*hardware, points[i], figures);
    // What a description was made from says nothing about how well it predicts.
    if (!figures.predicted || points[i].calibrates) continue;
    const double error = std::abs(*prediction_error(figures));
    summary.errors[points[i].ranks].add(error);
    summary.errors_of_models[{points[i].ranks, points[i].models}].add(error);
    if (figures.halves) summary.halves[points[i].ranks].add(std::abs(*figures.halves - 1));
    if (figures.disturbed) summary.disturbed[points[i].ranks].add(*figures.disturbed);
  }
}

}  // namespace

void Deviations::add(double error) {
  mean = (mean * points + error) / (points + 1);
  worst = points == 0 ? error : std::max(worst, error);
  ++points;
}

std::optional<double> prediction_error(const PointFigures& of) {
  if (!of.predicted || !of.undisturbed_ms_per_token) return std::nullopt;
  return kMsPerSecond * of.predicted->token.mean / *of.undisturbed_ms_per_token - 1;
}

Band band(std::vector<double> values, double mean) {
  check(!values.empty(), "a band of no values");
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<std::size_t>(rank, 1) - 1];
  };
  return {.mean = mean, .p10 = at(0.1), .p90 = at(0.9)};
}

StudySummary summarise(const Study& study, const std::vector<StudyPoint>& points, const StudyResults& results) {
  StudySummary summary;
  TimedAlone timed;
  std::vector<PacedJob> paced;
  std::string latest;
  for (std::size_t i = 0; i < points.size(); ++i) {
    PointFigures figures;
    JobSums sums;
    for (int repeat = 0; repeat < repeats_of(study, points[i]); ++repeat) {
      const json* const row = results.latest(points[i].key, repeat);
      if (row == nullptr) continue;
      if (row->at("status") != "ok") {
        ++figures.failed;
        figures.error = row->at("error").get<std::string>();
        continue;
      }
      if (points[i].kind == PointKind::kPasses) {
        ++figures.finished;
        timed.passes.push_back(row->at("passes"));
        continue;
      }
      if (points[i].kind == PointKind::kLink) {
        ++figures.finished;
        timed.links[points[i].ranks].push_back(row->at("rows"));
        continue;
      }
      if (points[i].kind == PointKind::kAllReduce) {
        ++figures.finished;
        for (const json& line : row->at("rows")) summary.all_reduces.push_back(line);
        continue;
      }
      add(sums, figures, *row, points[i].k);
      ++summary.places[place_of(row->at("machine"))];
      const auto time = row->at("ended").get<std::string>();
      if (has_one_k(points[i])) paced.push_back({.point = i, .loop_ms = sums.job_loop.back(), .ended = time});
      if (time >= latest) {
        latest = time;
        summary.machine = row->at("machine");
        summary.program = row->at("program").get<std::string>();
      }
    }
    if (points[i].kind == PointKind::kDecode) fill(figures, sums, points[i]);
    summary.points.push_back(std::move(figures));
  }
  if (study.calibrates() && !timed.passes.empty()) calibrate_points(summary, study, points, std::move(timed));
  compare_points(summary, study, points);
  summary.pace = pace_of(std::move(paced));
  return summary;
}

}  // namespace specdec
