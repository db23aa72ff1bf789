/// What jobs of a study left on the disk, and figures of it.
#include "runtime/study_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "backend/error.h"
#include "models/config.h"
#include "runtime/bench_results.h"
#include "runtime/pass_times_json.h"
#include "runtime/pass_work.h"
#include "runtime/published.h"
#include "runtime/study_summary.h"
#include "runtime/study_text.h"
#include "runtime/theory.h"
#include "tests/support/bad_input.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using tests::TemporaryDirectory;

json row(const std::string& key, int repeat, const std::string& status = "ok") {
  return {{"key", key}, {"repeat", repeat}, {"status", status}, {"error", status == "ok" ? json() : json("why")}};
}

TEST(StudyResults, AreThereAgainInTheNextProgram) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "results.jsonl";
  {
    StudyResults results(file);
    results.append(row("a", 0));
    results.append(row("a", 1, "failed"));
  }
  StudyResults results(file);
  ASSERT_NE(results.finished("a", 0), nullptr);
  EXPECT_EQ(results.finished("a", 1), nullptr);
  ASSERT_NE(results.latest("a", 1), nullptr);
  EXPECT_EQ(results.finished("b", 0), nullptr);
  results.append(row("a", 1));
  EXPECT_NE(StudyResults(file).finished("a", 1), nullptr) << "a job that failed may be run again";
  results.append(row("a", 1, "timeout"));
  EXPECT_EQ(StudyResults(file).latest("a", 1)->at("status"), "ok") << "and what is finished is never lost";
}

TEST(StudyResults, ALineThatACrashToreIsLeftOutAndTheNextOneIsWhole) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "results.jsonl";
  std::ofstream(file) << row("a", 0).dump() << "\n"
                      << R"({"key":"b","rep)";
  StudyResults results(file);
  EXPECT_NE(results.finished("a", 0), nullptr);
  EXPECT_EQ(results.latest("b", 0), nullptr);
  results.append(row("b", 0));
  const StudyResults again(file);
  EXPECT_NE(again.finished("a", 0), nullptr);
  EXPECT_NE(again.finished("b", 0), nullptr);
}

TEST(StudyResults, AnotherProgramsFileIsRefused) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "results.jsonl";
  std::ofstream(file) << "{\"a\": 3}\n";
  EXPECT_THROW(StudyResults{file}, Error);
  StudyResults nowhere(directory.path() / "no" / "results.jsonl");
  EXPECT_THROW(nowhere.append(row("a", 0)), Error);
}

/// A job of `loops` loops of 10 ms, each of `tokens` tokens, over two prompts that take shares 1 and 3 of it.
json ran(const StudyPoint& point, int repeat, double loops, double tokens, double ms_a_loop, double stood = 0.6) {
  const double all = loops * ms_a_loop;
  const bool drafts = point.k > 0;
  json split = json::object();
  for (const char* part : {"draft", "broadcast", "score_compute", "score_all_reduce", "decide", "rest"}) {
    split[part] = {{"seconds", all / 6e3}, {"share", 1.0 / 6}};
  }
  const json metrics = {{"tokens", loops * tokens},
                        {"loops", loops},
                        {"full_loops", loops},
                        {"full_loops_drafted", loops * static_cast<double>(point.k)},
                        {"decode_seconds", all / 1e3},
                        {"tokens_per_loop", tokens},
                        {"expected_tokens_per_loop", drafts ? json(tokens) : json()},
                        {"reached", drafts ? loops * 2 : 0},
                        {"accepted", drafts ? loops * 2 * stood : 0},
                        {"acceptance_rate", drafts ? json(0.5 + 0.2 * repeat) : json()},
                        {"drafted", loops * static_cast<double>(point.k)},
                        {"draft_ms_per_token", drafts ? json(1.5) : json()},
                        {"ms_per_token", ms_a_loop / tokens},
                        {"loop_ms", {{"p50", ms_a_loop}, {"p90", ms_a_loop}, {"p99", ms_a_loop}}},
                        {"token_ms", {{"p50", 1 + repeat}, {"p90", 2 + repeat}, {"p99", 3 + repeat}}},
                        {"split", split}};
  json prompts = json::array();
  for (const double share : {0.25, 0.75}) {
    prompts.push_back(
        {{"prompt_tokens", 10}, {"tokens", loops * tokens / 2}, {"loops", loops / 2}, {"decode_ms", share * all}});
  }
  json out = row(point.key, repeat);
  out.update({{"run", {{"metrics", metrics}, {"collectives", {{"total", 200}, {"late", 50}}}, {"prompts", prompts}}},
              {"machine", {{"ranks", 1}, {"hosts", {"a", "b"}}, {"cpus", {"EPYC"}}}},
              {"program", "specdec_dist 0.1.0\nmore"},
              {"modelled", true},
              {"forced", "weights: random (seed 0)"},
              {"ended", "2026-01-01T00:00:00Z"}});
  return out;
}

class StudyFigures : public ::testing::Test {
 protected:
  StudyFigures()
      : study_(parse_study("config: " SPECDEC_SOURCE_DIR
                           "/configs/chinchilla-like-native.yaml\nk: [0, 4]\nrepeats: 2\nhardware: h100x8\n"
                           "published: " SPECDEC_SOURCE_DIR "/configs/published/chen-humaneval.yaml\n",
                           "f.yaml", "f")),
        points_(points_of(study_)),
        results_(directory_.path() / "results.jsonl") {
    study_.hardware = SPECDEC_SOURCE_DIR "/configs/hardware/h100x8.yaml";
  }

  TemporaryDirectory directory_;
  Study study_;
  std::vector<StudyPoint> points_;
  StudyResults results_;
};

/// What stands varies by chance, and with it the time that jobs take: that is no error of the cost model's.
TEST_F(StudyFigures, ArePredictedForTheShareThatStoodInTheirJobs) {
  results_.append(ran(points_[0], 0, 100, 1, 10));
  results_.append(ran(points_[1], 0, 30, 2.5, 15, 0.5));
  results_.append(ran(points_[1], 1, 10, 2.5, 15, 0.9));
  const StudySummary summary = summarise(study_, points_, results_);
  const PointFigures& fast = summary.points[1];
  EXPECT_DOUBLE_EQ(fast.stood.value(), 0.6) << "by tokens that were reached, not by jobs";
  EXPECT_NE(fast.alpha.value(), fast.stood.value());
  EXPECT_DOUBLE_EQ(fast.predicted.value().tokens_per_loop, tokens_per_loop(0.6, 4));
  EXPECT_FALSE(summary.points[0].stood);
  EXPECT_DOUBLE_EQ(summary_json(study_, points_, summary)["points"][1]["accepted_over_reached"].get<double>(), 0.6);
}

/// One that was gone on with may have run on several machines.
TEST_F(StudyFigures, SayWhatTheJobsRanOn) {
  json job = ran(points_[0], 0, 100, 1, 10);
  results_.append(job);
  results_.append(ran(points_[1], 0, 100, 1, 10));
  job["repeat"] = 1;
  job["machine"]["cpus"] = {"Xeon"};
  results_.append(job);
  const json places = summary_json(study_, points_, summarise(study_, points_, results_))["places"];
  EXPECT_EQ(places, json({{"a, b (EPYC)", 2}, {"a, b (Xeon)", 1}}));
}

TEST_F(StudyFigures, ACalibrationIsOfWhatIsUndisturbed) {
  const Study study = parse_study("config: " SPECDEC_SOURCE_DIR
                                  "/configs/chinchilla-like-native.yaml\nranks: [2]\nk: [0, 4]\nall_reduce: "
                                  "false\nrepeats: 4\nhardware: calibrated\n",
                                  "f.yaml", "f");
  const std::vector<StudyPoint> points = points_of(study);
  const PassTimes times = {.target = {1e-3, 1.1e-3},
                           .whole_target = 2e-3,
                           .draft = {1e-4, 1.1e-4},
                           .draft_after_target = 2e-4,
                           .in_own_cache = 1e-5,
                           .filling_own_cache = 2.5e-5,
                           .own_cache_bytes = 1 << 20,
                           .layer = 1e-6,
                           .after_more_keys = {1e-5, 2e-5},
                           .more_keys = 384};
  // Of four jobs the quicker half takes 1.5 times as long as the first, the middle half 2.5 times.
  for (const StudyPoint& point : points) {
    for (int repeat = 0; repeat < 4; ++repeat) {
      json job = row(point.key, repeat);
      if (point.kind == PointKind::kPasses) {
        PassTimes these = times;
        these.layer *= 1 + repeat;
        for (double& longer : these.after_more_keys) longer *= 1 + repeat;
        job["passes"] = pass_times_json({{2, these}});
      }
      if (point.kind == PointKind::kLink) {
        job["rows"] = {{{"transport", kBaselineTransport}, {"bytes", 1024}, {"p50_us", 90}},
                       {{"transport", "shm"}, {"bytes", 16384}, {"p50_us", 10}},
                       {{"transport", "shm"}, {"bytes", 1024}, {"p50_us", 2 + 2 * repeat}}};
      }
      results_.append(point.kind == PointKind::kDecode ? ran(point, repeat, 100, 2, 10) : job);
    }
  }
  const StudySummary summary = summarise(study, points, results_);
  const Link& link = summary.calibrated.at(2).interconnect.link;
  EXPECT_NEAR(link.bandwidth, 15360 / 7e-6, 1);
  EXPECT_NEAR(link.latency, 3e-6 - 1024 / link.bandwidth, 1e-12) << "that of ranks that do nothing else";
  EXPECT_NEAR(summary.calibrated.at(2).layer_seconds, 1.5e-6, 1e-12);
  const ModelConfig target = load_model_config(points[0].config.target);
  const auto attention = [&](std::int64_t context) {
    return work_of(target, {.rows = 1, .context = context, .ranks = 2, .weights = DType::kBF16}).attention;
  };
  EXPECT_NEAR((attention(384) - attention(0)) / summary.calibrated.at(2).attention_rate, 2.5e-5, 1e-9)
      << "a row more of what passes differ by, which is of the middle half";
  EXPECT_EQ(summary.calibrated.at(2).own_cache_bytes, 1 << 20);
  EXPECT_GT(summary.calibrated.at(2).own_cache_rate, summary.calibrated.at(2).cache.rate) << "as it was timed";
  EXPECT_NE(summary.calibrated.at(2).own_cache_share, Hardware{}.own_cache_share) << "as that was";
}

TEST_F(StudyFigures, SayWhetherTheMachineChangedItsPace) {
  EXPECT_TRUE(summary_json(study_, points_, summarise(study_, points_, results_))["pace"].is_null());
  study_.repeats = 24;
  for (int repeat = 0; repeat < 24; ++repeat) {
    for (const int point : {0, 1}) {
      json job = ran(points_[point], repeat, 100, 1, repeat < 12 ? 10 : 14);
      job["ended"] = "2026-01-01T00:00:" + std::to_string(10 + repeat) + "Z";
      results_.append(job);
    }
  }
  const StudySummary summary = summarise(study_, points_, results_);
  const json pace = summary_json(study_, points_, summary)["pace"];
  EXPECT_EQ(pace["parts"], 2);
  EXPECT_NEAR(pace["most"].get<double>() / pace["least"].get<double>(), 1.4, 1e-9);
  EXPECT_THAT(summary_text(study_, points_, summary), HasSubstr("jobs took 1.00 to 1.40 of what their points"));
}

TEST_F(StudyFigures, SayHowFarJobsOfOnePointDiffer) {
  study_.repeats = 4;
  for (int repeat = 0; repeat < 4; ++repeat) {
    results_.append(ran(points_[0], repeat, 100, 1, repeat % 2 == 0 ? 10 : 12));
    results_.append(ran(points_[1], repeat, 40, 2.5, 15));
  }
  const StudySummary summary = summarise(study_, points_, results_);
  ASSERT_TRUE(summary.points[0].halves && summary.points[1].halves);
  EXPECT_DOUBLE_EQ(*summary.points[0].halves, 1.2);
  EXPECT_DOUBLE_EQ(*summary.points[1].halves, 1);
  EXPECT_NEAR(summary.halves.at(1).mean, 0.1, 1e-9);
  EXPECT_THAT(summary_text(study_, points_, summary),
              HasSubstr("every other job of these points differs from the rest by 10.0 %, at worst 20.0 %; over all "
                        "jobs and loops a token takes 5.0 % longer in the mean, at most 10.0 %"));
  const json errors = summary_json(study_, points_, summary)["errors"][0];
  EXPECT_NEAR(errors["halves_worst"].get<double>(), 0.2, 1e-9);
  EXPECT_NEAR(errors["disturbed_worst"].get<double>(), 0.1, 1e-9);
}

/// Few loops that a limit cuts can make the mean of all less than the median one.
TEST_F(StudyFigures, MayTakeLongerUndisturbedThanInTheMean) {
  json job = ran(points_[0], 0, 100, 1, 10);
  job["run"]["metrics"]["loop_ms"]["p50"] = 12.5;
  results_.append(job);
  const StudySummary summary = summarise(study_, points_, results_);
  EXPECT_NEAR(summary.disturbed.at(1).mean, -0.2, 1e-9);
  EXPECT_NEAR(summary.disturbed.at(1).worst, -0.2, 1e-9);
}

/// Where seeds differ some jobs yield more tokens of as many loops.
TEST_F(StudyFigures, AreNoneTheQuickerForTokensByChance) {
  study_.repeats = 4;
  for (int repeat = 0; repeat < 4; ++repeat) results_.append(ran(points_[1], repeat, 100, 1 + repeat % 2, 10));
  EXPECT_DOUBLE_EQ(*summarise(study_, points_, results_).points[1].undisturbed_ms_per_token, 10 / 1.5);
}

TEST_F(StudyFigures, LoopsOfManyLengthsAreNoMeasureOfWhatDisturbsThem) {
  points_[1].config.decode.draft_length = DraftLengthRule::kOptimal;
  points_[0].config.decode.draft_length = DraftLengthRule::kOptimal;
  study_.repeats = 24;
  for (int repeat = 0; repeat < 24; ++repeat) {
    results_.append(ran(points_[0], repeat, 100, 1, 5));
    results_.append(ran(points_[1], repeat, 100, 2, 10 + repeat));
  }
  const StudySummary summary = summarise(study_, points_, results_);
  const PointFigures& adapts = summary.points[1];
  EXPECT_FALSE(adapts.undisturbed_ms_per_token || adapts.disturbed || adapts.halves || adapts.predicted);
  EXPECT_TRUE(summary_json(study_, points_, summary)["points"][1]["undisturbed_ms_per_token"].is_null());
  EXPECT_THAT(summary_text(study_, points_, summary), HasSubstr(" | - | - | - |\n"));
  EXPECT_FALSE(summary.pace) << "24 jobs have loops of one length";
  EXPECT_EQ(summary.points[0].undisturbed_ms_per_token, 5) << "whatever the rule, K is 0";
  EXPECT_TRUE(summary.points[0].predicted);
}

TEST_F(StudyFigures, PartsOfAnUndisturbedLoopAreOfTheSameJobs) {
  study_.repeats = 4;
  constexpr double kCompute[] = {6, 9, 7, 1};
  for (int repeat = 0; repeat < 4; ++repeat) {
    constexpr double kLoops = 100;
    const double loop = 10 + repeat;
    json job = ran(points_[0], repeat, kLoops, 1, loop);
    json& split = job["run"]["metrics"]["split"];
    for (const char* part : {"draft", "broadcast", "decide", "rest"}) split[part]["seconds"] = 0;
    split["score_compute"]["seconds"] = kLoops * kCompute[repeat] / 1e3;
    split["score_all_reduce"]["seconds"] = kLoops * (loop - kCompute[repeat]) / 1e3;
    results_.append(job);
  }
  const StudySummary summary = summarise(study_, points_, results_);
  std::map<std::string, double> parts;
  for (const auto& [part, ms] : summary.points[0].undisturbed_split_ms) parts[part] = ms;
  EXPECT_DOUBLE_EQ(parts["score_compute"], 7.5) << "of the loops of 10 and 11 ms";
  EXPECT_DOUBLE_EQ(parts["score_all_reduce"], 3);
  EXPECT_DOUBLE_EQ(*summary.points[0].undisturbed_ms_per_token, 10.5);
  EXPECT_DOUBLE_EQ(*summary.points[0].disturbed, 11.5 / 10.5 - 1);
}

TEST_F(StudyFigures, AreThoseOfAllRepetitions) {
  for (int repeat = 0; repeat < 2; ++repeat) {
    results_.append(ran(points_[0], repeat, 100, 1, 10));
    results_.append(ran(points_[1], repeat, 40, 2.5, 15));
  }
  const StudySummary summary = summarise(study_, points_, results_);
  ASSERT_EQ(summary.points.size(), 2U);
  const PointFigures& alone = summary.points[0];
  EXPECT_DOUBLE_EQ(alone.ms_per_token.mean, 10);
  EXPECT_DOUBLE_EQ(alone.ms_per_token.p10, 5);
  EXPECT_DOUBLE_EQ(alone.ms_per_token.p90, 15);
  EXPECT_EQ(alone.speedup, 1);
  EXPECT_FALSE(alone.alpha);
  const PointFigures& fast = summary.points[1];
  EXPECT_EQ(fast.finished, 2);
  EXPECT_EQ(fast.tokens, 200);
  EXPECT_DOUBLE_EQ(fast.ms_per_token.mean, 6);
  EXPECT_DOUBLE_EQ(*fast.undisturbed_ms_per_token, 6);
  EXPECT_DOUBLE_EQ(fast.ms_per_loop.mean, 15);
  EXPECT_DOUBLE_EQ(fast.ms_per_loop.p90, 22.5);
  EXPECT_DOUBLE_EQ(fast.efficiency.mean, 0.5);
  EXPECT_DOUBLE_EQ(*fast.alpha, 0.6);
  EXPECT_DOUBLE_EQ(*fast.speedup, 10.0 / 6);
  EXPECT_DOUBLE_EQ(*fast.cost_ratio, 0.15);
  EXPECT_DOUBLE_EQ(fast.token_ms.p90, 2.5);
  EXPECT_DOUBLE_EQ(fast.late_share, 0.25);
  ASSERT_EQ(fast.split_ms.size(), 6U);
  EXPECT_DOUBLE_EQ(fast.split_ms.front().second, 2.5);
  ASSERT_TRUE(fast.predicted);
  EXPECT_EQ(summary.errors.at(1).points, 2);
  EXPECT_GT(summary.errors.at(1).worst, 0.5) << "an H100 is not this machine";
  EXPECT_EQ(summary.errors_of_models.at({1, "default"}).points, 2);
  // Theorems 3.8 and 3.11 at 2.5 tokens a loop, K = 4 and c = 0.15.
  EXPECT_DOUBLE_EQ(*fast.theory_speedup, 2.5 / 1.6);
  EXPECT_GT(*fast.theory_operations, 5 / 2.5);
  EXPECT_LT(*fast.theory_operations, 6 / 2.5);
  EXPECT_FALSE(alone.theory_speedup);

  const json out = summary_json(study_, points_, summary);
  EXPECT_EQ(out["points"][1]["placement"], "rank0");
  EXPECT_EQ(out["points"][1]["kind"], "measured under a modelled interconnect");
  EXPECT_EQ(out["points"][1]["forced"], "weights: random (seed 0)");
  EXPECT_EQ(out["published"]["k"].size(), 8U);
  ASSERT_EQ(out["published"]["predicted"]["ms_128"].size(), 8U);
  EXPECT_NEAR(out["published"]["predicted"]["alpha"].get<double>(), 0.886, 0.001);
  for (const char* const what : {"ms_128", "ms_per_loop", "efficiency"}) {
    for (std::size_t k = 0; k < 8; ++k) {
      const double theirs = out["published"][what][k].get<double>();
      EXPECT_NEAR(out["published"]["predicted"][what][k].get<double>(), theirs, 0.05 * theirs) << what << ", K = " << k;
    }
  }
  ASSERT_EQ(out["published"]["table"].size(), 3U);
  json first = out["published"]["table"][0];
  const json told = first["predicted"];
  first.erase("predicted");
  EXPECT_EQ(first, (json{{"task", "HumanEval, T 0.8, top-p 0.95"},
                         {"k", 4},
                         {"ms_alone", 14.1},
                         {"ms", 5.73},
                         {"speedup", 2.46},
                         {"alpha", 0.886}}));
  EXPECT_NEAR(told["ms_alone"].get<double>(), 14.1, 0.05 * 14.1);
  EXPECT_NEAR(told["ms"].get<double>(), 5.73, 0.05 * 5.73);
  EXPECT_NEAR(told["speedup"].get<double>(), told["ms_alone"].get<double>() / told["ms"].get<double>(), 1e-9);
  EXPECT_NEAR(out["published"]["table"][1]["predicted"]["ms"].get<double>(), 7.36, 0.01) << "as their figure 1 has it";
  EXPECT_TRUE(out["published"]["table"][2]["alpha"].is_null());
  EXPECT_TRUE(out["published"]["table"][2]["predicted"].is_null()) << "no acceptance rate of greedy decoding is known";
  EXPECT_THAT(summary_text(study_, points_, summary),
              HasSubstr("Forced, and not what models say: weights: random (seed 0)."));
}

TEST_F(StudyFigures, EachPointSaysWhatIsForcedInIt) {
  results_.append(ran(points_[0], 0, 100, 1, 10));
  json other = ran(points_[1], 0, 40, 2.5, 15);
  other["forced"] = "acceptance: synthetic (alpha 0.6)";
  results_.append(other);
  const std::string text = summary_text(study_, points_, summarise(study_, points_, results_));
  EXPECT_THAT(text, HasSubstr("measured under a modelled interconnect, forced 1 |"));
  EXPECT_THAT(text, HasSubstr("measured under a modelled interconnect, forced 2 |"));
  EXPECT_THAT(text,
              HasSubstr("Forced, and not what models say: forced 1: weights: random (seed 0); forced 2: acceptance: "
                        "synthetic (alpha 0.6)."));
}

TEST_F(StudyFigures, WhatFailedOrDidNotRunIsARowOfItsOwn) {
  json failed = row(points_[0].key, 0, "failed");
  failed["error"] = "exit code 3: rank 1 is lost, \"so\"";
  results_.append(failed);
  const StudySummary summary = summarise(study_, points_, results_);
  EXPECT_EQ(summary.points[0].failed, 1);
  const std::string text = summary_text(study_, points_, summary);
  EXPECT_THAT(text, HasSubstr("| 0 | failed |"));
  EXPECT_THAT(text, HasSubstr("| 4 | not run |"));
  EXPECT_THAT(text, HasSubstr("1 of its jobs failed: exit code 3: rank 1 is lost, \"so\""));
  const json out = summary_json(study_, points_, summary);
  EXPECT_EQ(out["failed"][0]["error"], "exit code 3: rank 1 is lost, \"so\"");
  // As many cells in each row of the CSV as in its head.
  const std::string csv = summary_csv(points_, summary);
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  const auto commas = std::ranges::count(line, ',');
  constexpr const char* kQuoted = ",\"exit code 3: rank 1 is lost, \"\"so\"\"\"";
  EXPECT_THAT(csv, HasSubstr(std::string(kQuoted) + "\n"));
  while (std::getline(lines, line)) {
    const auto within = line.ends_with(kQuoted) ? 1 : 0;
    EXPECT_EQ(std::ranges::count(line, ','), commas + within) << line;
  }
}

TEST(StudyBand, IsNearestRank) {
  const Band ten = band({10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 5.5);
  EXPECT_EQ(ten.p10, 1);
  EXPECT_EQ(ten.p90, 9);
  EXPECT_EQ(ten.mean, 5.5);
  const Band one = band({3}, 3);
  EXPECT_EQ(one.p10, 3);
  EXPECT_EQ(one.p90, 3);
}

TEST(Published, WhatIsPredictedOfItIsReadBeforeAnyJobRuns) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "p.yaml";
  const auto told = [&](const std::string& job, double efficiency = 0.8) {
    std::ofstream(file) << "title: t\nsource: s\nk: [0, 4]\nms_128: [2, 1]\ntokens_per_loop_over_k1: [1, " << efficiency
                        << "]\nms_per_loop: [1, 2]\n"
                        << job;
    const Study study = parse_study(
        "config: " SPECDEC_SOURCE_DIR "/configs/chinchilla-like-native.yaml\npublished: " + file.string() + "\n",
        "f.yaml", "f");
    return tests::bad_input([&] { points_of(study); });
  };
  const auto job = [](const std::string& hardware, const std::string& config, int fit_k) {
    return "predicted: {hardware: " + hardware + ", config: " + config + ", fit_k: " + std::to_string(fit_k) + "}\n";
  };
  EXPECT_THAT(told(job("tpu-v5", "chinchilla-70b.yaml", 4)), HasSubstr("found no file 'tpu-v5'"));
  EXPECT_THAT(told(job("tpu-v4x16", "chinchilla-71b.yaml", 4)), HasSubstr("found no file 'chinchilla-71b.yaml'"));
  EXPECT_THAT(told(job("tpu-v4x16", "chinchilla-70b.yaml", 3)),
              HasSubstr("predicted.fit_k: found 3, expected one of k"));
  EXPECT_THAT(told(job("tpu-v4x16", "chinchilla-70b.yaml", 4), 1.1),
              HasSubstr("expected what 1 to 5 tokens a loop are"));
  EXPECT_THAT(told("predicted: {hardware: tpu-v4x16, fit_k: 4}\n"), HasSubstr("predicted.config: found nothing"));
}

TEST(Published, ListsThatBelongTogetherAreEquallyLong) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "p.yaml";
  const auto told = [&](const std::string& table, const std::string& ms_per_loop = "[1, 2]") {
    std::ofstream(file) << "title: t\nsource: s\nk: [0, 4]\nms_128: [2, 1]\ntokens_per_loop_over_k1: [1, 0.8]\n"
                        << "ms_per_loop: " << ms_per_loop << "\n"
                        << table;
    return tests::bad_input([&] { load_published(file.string(), "test"); });
  };
  EXPECT_THAT(told("table: {task: [a, b], k: [4], ms_alone: [2, 2], ms: [1, 1], speedup: [2, 2]}\n"),
              HasSubstr("found lists of 2 and 1 numbers, expected one for each task"));
  EXPECT_THAT(told("table: {task: [a], k: [4], ms_alone: [2], ms: [1]}\n"), HasSubstr("table.speedup: found nothing"));
  const std::string whole = "table: {task: [a], k: [0], ms_alone: [2], ms: [1], speedup: [2]}\n";
  EXPECT_THAT(told(whole, "[1]"), HasSubstr("found lists of 2 and 1 numbers, expected one for each K"));
  EXPECT_THAT(told(whole, "[1, 0]"), HasSubstr("expected a list of numbers above 0"));
  const auto with_alpha = [](const std::string& alpha) {
    return "table: {task: [a], k: [4], ms_alone: [2], ms: [1], speedup: [2], alpha: " + alpha + "}\n";
  };
  EXPECT_THAT(told(with_alpha("[0.8, 0.7]")), HasSubstr("found lists of 1 and 2 numbers, expected one for each task"));
  EXPECT_THAT(told(with_alpha("[1.2]")),
              HasSubstr("table.alpha: found '1.2', expected a list of numbers between 0 and 1"));
}

}  // namespace
}  // namespace specdec
