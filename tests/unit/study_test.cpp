/// A study as it is written down: its points, their commands, their order, and what is wrong with it.
#include "runtime/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/bad_input.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using tests::bad_input;

const std::string kConfig = "config: " SPECDEC_SOURCE_DIR "/configs/chinchilla-like-native.yaml\n";

Study parsed(const std::string& yaml) { return parse_study(kConfig + yaml, "f.yaml", "f"); }

std::string error_in(const std::string& yaml, bool with_config = true) {
  return bad_input([&] { points_of(parse_study((with_config ? kConfig : "") + yaml, "f.yaml", "f")); });
}

std::vector<std::string> labels(const std::vector<StudyPoint>& points) {
  std::vector<std::string> out;
  for (const StudyPoint& point : points) out.push_back(point.label());
  return out;
}

TEST(Study, HasAPointForEveryCombination) {
  const std::vector<StudyPoint> points =
      points_of(parsed("ranks: [1, 2]\nk: [0, 3]\ninterconnect: [native, tpu-v4-chen]\nall_reduce: false\n"
                       "models: {shipped: {}, small: {draft: assets/manpy-0.5m}}\n"
                       "methods: {greedy: {decode: {temperature: 0}}, nucleus: {decode.top_p: 0.9}}\n"));
  EXPECT_EQ(points.size(), 2U * 2 * 2 * 2 * 2);
  std::set<std::string> keys;
  for (const StudyPoint& point : points) keys.insert(point.key);
  EXPECT_EQ(keys.size(), points.size()) << "no two are the same job";
  EXPECT_THAT(labels(points), Contains("ranks 2, K 3, tpu-v4-chen, small, nucleus"));
}

TEST(Study, PlacementsAreOfPointsThatDraft) {
  const std::vector<StudyPoint> points =
      points_of(parsed("ranks: [2]\nk: [0, 2]\nall_reduce: false\nplacement: [rank0, replicated, sharded]\n"));
  EXPECT_THAT(labels(points), ElementsAre("ranks 2, K 0, native", "ranks 2, K 2, native",
                                          "ranks 2, K 2, native, replicated", "ranks 2, K 2, native, sharded"));
  EXPECT_THAT(points[3].set, Contains("placement=sharded"));
  EXPECT_THAT(labels(points_of(parsed("ranks: [1, 2]\nk: [0, 2]\nall_reduce: false\nplacement: [dedicated]\n"))),
              ElementsAre("ranks 1, K 0, native", "ranks 2, K 0, native", "ranks 2, K 2, native, dedicated"))
      << "one rank has none to spare";
  EXPECT_THAT(error_in("placement: [shard]\n"),
              HasSubstr("placement: found 'shard', expected one of rank0, replicated"));
}

TEST(Study, AMethodThatSetsKHasNoOtherAndAllReducesAreOfSeveralRanks) {
  const std::vector<StudyPoint> points = points_of(
      parsed("ranks: [1, 2]\nk: [0, 2]\nmethods: {fixed: {}, adaptive: {decode: {k: 8, draft_length: optimal}}}\n"));
  EXPECT_THAT(labels(points), ElementsAre("ranks 1, K 0, native, fixed", "ranks 1, K 2, native, fixed",
                                          "ranks 1, K 8, native, adaptive", "ranks 2, K 0, native, fixed",
                                          "ranks 2, K 2, native, fixed", "ranks 2, K 8, native, adaptive",
                                          "all-reduces, ranks 2, native"));
}

TEST(Study, ValuesMayDependOnTheNumberOfRanks) {
  const std::vector<StudyPoint> points = points_of(
      parsed("ranks: [1, 2]\nk: [0]\nall_reduce: false\nmethods: {long: {decode.max_new_tokens: \"1{ranks}\"}}\n"));
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].config.decode.max_new_tokens, 11);
  EXPECT_EQ(points[1].config.decode.max_new_tokens, 12);
  EXPECT_THAT(points[1].set, Contains("decode.max_new_tokens=12"));
}

TEST(Study, CommandsAreWhatAUserWouldType) {
  const Study study = parsed(
      "ranks: [2]\nk: [0, 4]\nset: {decode: {max_new_tokens: 9, stop: [a, b]}}\nlauncher: srun  -n {ranks} "
      "--x={ranks}\n");
  const std::vector<StudyPoint> points = points_of(study);
  ASSERT_EQ(points.size(), 3U);
  const std::vector<std::string> alone = command_of(study, points[0], 3, "/p", "/j");
  EXPECT_THAT(std::vector(alone.begin(), alone.begin() + 5),
              ElementsAre("srun", "-n", "2", "--x=2", "/p/specdec_dist"));
  EXPECT_THAT(alone, IsSupersetOf({"decode.max_new_tokens=9", "decode.stop=[a, b]", "compare=false", "decode.k=0",
                                   "decode.method=autoregressive", "interconnect=native", "decode.seed=4"}));
  EXPECT_THAT(command_of(study, points[1], 3, "/p", "/j"), IsSupersetOf({"decode.k=4", "decode.method=speculative"}));
  EXPECT_THAT(command_of(study, points[2], 3, "/p", "/j"),
              IsSupersetOf({"/p/allreduce_bench", "--interconnect", "native", "--json", "/j"}));
}

TEST(Study, KeysSayWhatAJobDoes) {
  const auto key = [](const std::string& yaml) {
    return points_of(parsed("all_reduce: false\nk: [4]\n" + yaml)).front().key;
  };
  EXPECT_EQ(key(""), key("repeats: 7\nseed: 3\ntimeout: 9\ntitle: other\n"));
  EXPECT_NE(key(""), key("set: {decode.seed: 5}\n"));
  EXPECT_NE(key(""), key("ranks: [2]\n"));
  EXPECT_NE(key(""), key("launcher: mpirun --bind-to none -np {ranks}\n"));
}

TEST(Study, ACalibrationIsMadeFromPointsOfTheStudyAndFromPasses) {
  const std::vector<StudyPoint> points =
      points_of(parsed("ranks: [1, 2]\nk: [0, 2, 4]\nall_reduce: false\nhardware: calibrated\n"
                       "models: {shipped: {}, small: {draft: assets/manpy-0.5m}}\n"));
  ASSERT_EQ(points.size(), 14U);
  std::vector<std::string> from;
  Study study;
  study.repeats = 5;
  for (const StudyPoint& point : points) {
    if (point.calibrates) from.push_back(point.label());
    EXPECT_EQ(repeats_of(study, point), point.calibrates ? 15 : 5) << point.label();
  }
  EXPECT_THAT(from, ElementsAre("ranks 1, K 0, native, shipped", "ranks 1, K 4, native, shipped",
                                "ranks 2, K 0, native, shipped", "ranks 2, K 4, native, shipped"));
  EXPECT_EQ(points.back().kind, PointKind::kPasses);
  const StudyPoint& link = points[points.size() - 2];
  EXPECT_EQ(link.label(), "link alone, ranks 2");
  EXPECT_THAT(command_of(parsed("hardware: calibrated\n"), link, 3, "/p", "/j"),
              IsSupersetOf({"/p/allreduce_bench", "--transport", "auto", "--d-model", "256", "--tokens", "--json"}));
  EXPECT_THAT(command_of(parsed("hardware: calibrated\n"), points.back(), 3, "/p", "/j"),
              IsSupersetOf({"/p/specdec_study", "--time-passes", "--json", "/j"}));
  EXPECT_THAT(error_in("k: [0, 3]\nhardware: calibrated\n"),
              HasSubstr("hardware: found calibrated without the point 'ranks 1, K 4, native'"));
  EXPECT_THAT(
      error_in("k: [0, 4]\nranks: [2]\nplacement: [sharded, dedicated]\nhardware: calibrated\n"),
      HasSubstr("without the point 'ranks 2, K 4, native' of the first models and method with placement rank0"));
}

TEST(Study, CalibrationRunsAmongAllOthers) {
  const Study study = parsed("k: [0, 1, 2, 3, 4]\nall_reduce: false\nhardware: calibrated\nrepeats: 4\n");
  const std::vector<StudyPoint> points = points_of(study);
  const std::vector<StudyJob> jobs = order_of(study, points);
  constexpr std::size_t kEach = 3 + 2 * 3 + 1;
  ASSERT_EQ(jobs.size(), 4 * kEach);
  std::set<std::pair<std::size_t, int>> seen;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const StudyPoint& point = points[jobs[i].point];
    EXPECT_EQ(static_cast<std::size_t>(jobs[i].repeat / (point.calibrates ? 3 : 1)), i / kEach) << point.label();
    EXPECT_TRUE(seen.insert({jobs[i].point, jobs[i].repeat}).second) << point.label();
  }
}

TEST(Study, OrderHasEveryJobOnceAndIsShuffledWithinARepetition) {
  const Study study = parsed("ranks: [1, 2, 4]\nk: [0, 1, 2, 3, 4, 5]\nrepeats: 3\nseed: 9\n");
  const std::vector<StudyPoint> points = points_of(study);
  ASSERT_EQ(points.size(), 20U);
  const std::vector<StudyJob> jobs = order_of(study, points);
  EXPECT_EQ(jobs.size(), 18U * 3 + 2) << "all-reduces run once";
  std::map<std::pair<std::size_t, int>, int> seen;
  int ascents = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ++seen[{jobs[i].point, jobs[i].repeat}];
    if (i == 0) continue;
    EXPECT_GE(jobs[i].repeat, jobs[i - 1].repeat);
    ascents += jobs[i].point == jobs[i - 1].point + 1 ? 1 : 0;
  }
  EXPECT_EQ(seen.size(), jobs.size());
  EXPECT_LT(ascents, 15);
  Study other = study;
  other.seed = 10;
  const auto order = [&](const Study& of) {
    std::vector<std::size_t> out;
    for (const StudyJob& job : order_of(of, points)) out.push_back(job.point);
    return out;
  };
  EXPECT_EQ(order(study), order(study));
  EXPECT_NE(order(study), order(other));
}

TEST(Study, PassesAreOfTheRanksThatAreCalibrated) {
  const auto key = [](const std::string& ranks) {
    return points_of(parsed("k: [0, 4]\nall_reduce: false\nhardware: calibrated\nranks: " + ranks + "\n")).back().key;
  };
  EXPECT_NE(key("[1]"), key("[1, 2]"));
  EXPECT_EQ(key("[1, 2]"), key("[1, 2]"));
}

TEST(Study, WhatTheStudySetsItselfIsNotGivenTwice) {
  EXPECT_THAT(error_in("set: {interconnect: native}\n"),
              HasSubstr("f.yaml: set: found 'interconnect', expected it as 'interconnect' of the study"));
  EXPECT_THAT(error_in("set: {decode: {k: 3}}\n"), HasSubstr("set: found 'decode.k', expected it as 'k' of the study"));
  EXPECT_THAT(error_in("models: {a: {placement: sharded}}\n"), HasSubstr("models.a: found 'placement'"));
  EXPECT_THAT(error_in("methods: {a: {decode.method: autoregressive}}\n"),
              HasSubstr("methods.a: found 'decode.method'"));
  EXPECT_THAT(error_in("methods: {a: {compare: true}}\n"), HasSubstr("methods.a: found 'compare'"));
}

TEST(Study, HardwareOfSomeNumbersOfRanksIsEnoughAndOfNoneIsAnError) {
  EXPECT_THAT(error_in("hardware: no-such-{ranks}\nranks: [2]\n"), HasSubstr("f: hardware: found no file 'no-such-2'"));
  EXPECT_NO_THROW(points_of(parsed("hardware: tpu-v4x{ranks}\nranks: [1, 16]\nall_reduce: false\n")));
}

TEST(Study, ErrorsAreOneLine) {
  EXPECT_THAT(error_in("k: [0]\n", false), HasSubstr("f.yaml: config: found nothing, expected the name of a config"));
  EXPECT_THAT(error_in("rank: [1]\n"), HasSubstr("f.yaml:2: unknown key 'rank'; did you mean 'ranks'?"));
  EXPECT_THAT(error_in("ranks: [0]\n"), HasSubstr("f.yaml:2: ranks: found '0', expected an integer from 1 to 16"));
  EXPECT_THAT(error_in("ranks: 2\n"), HasSubstr("ranks: found '2', expected a list of integers"));
  EXPECT_THAT(error_in("k: [1, 2, 1]\n"), HasSubstr("k: found '1' twice, expected each value once"));
  EXPECT_THAT(error_in("models: [a]\n"), HasSubstr("models: found a list, expected names that map to keys"));
  EXPECT_THAT(error_in("methods: {a: 3}\n"), HasSubstr("methods.a: found '3', expected a map of keys of a config"));
  EXPECT_THAT(error_in("methods: {a: {decode.temprature: 0}}\n"),
              AllOf(HasSubstr("unknown key 'decode.temprature'"), HasSubstr("did you mean 'decode.temperature'?")));
  EXPECT_THAT(error_in("launcher: mpirun -np 2\n"),
              HasSubstr("launcher: found 'mpirun -np 2', expected words with {ranks}"));
  EXPECT_THAT(error_in("interconnect: [tpu-v5]\n"), HasSubstr("found no file 'tpu-v5'"));
  EXPECT_THAT(error_in("set: {draft: }\n"), HasSubstr("found speculative without a draft"));
}

}  // namespace
}  // namespace specdec
