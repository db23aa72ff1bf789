#include "runtime/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "backend/error.h"
#include "runtime/config_keys.h"
#include "runtime/journal.h"
#include "runtime/report_json.h"
#include "tests/support/bad_input.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using tests::TemporaryDirectory;

LoopRecord loop(std::int64_t k, std::int64_t accepted, double total) {
  LoopRecord record;
  record.total = total;
  record.draft = 0.001 * static_cast<double>(k);
  record.score_compute = 0.008;
  record.drafted = k;
  record.reached = std::min(k, accepted + 1);
  record.accepted = accepted;
  record.beta_sum = static_cast<double>(accepted);
  record.emitted = accepted + 1;
  return record;
}

/// A greedy job of both methods whose texts agree; the speculative one takes 0.8 of the time.
void record_job(RunJournal& journal) {
  const std::vector<Token> one = {1};
  const std::vector<Token> two = {1, 1};
  journal.begin_run(Method::kAutoregressive, 0);
  journal.begin_output("p", {7, 8});
  journal.set_prefill(0.1);
  for (int i = 0; i < 4; ++i) journal.append(one, "a", loop(0, 0, 0.010));
  journal.finish_output("length");
  journal.begin_run(Method::kSpeculative, 1);
  journal.begin_output("p", {7, 8});
  for (int i = 0; i < 2; ++i) journal.append(two, "aa", loop(1, 1, 0.016));
  journal.finish_output("length", "!");
}

RunConfig greedy() {
  RunConfig config;
  config.decode.sampling.temperature = 0;
  return config;
}

/// What no figure of this machine can be mistaken for.
Interconnect described() {
  return {.name = "slow-wire",
          .source = "a test",
          .link = {.algorithm = LinkAlgorithm::kRing, .latency = 1.1e-6, .bandwidth = 1e9 / 3},
          .node = Link{.algorithm = LinkAlgorithm::kOneShot, .latency = 0.3e-6, .bandwidth = 7e9},
          .ranks_per_node = 4,
          .overhead = 1e-7,
          .multiplier = 1.25,
          .jitter = {.sigma = 0.1, .tail_probability = 0.01, .tail_mean = 1e-5}};
}

/// Both methods natively and, at half the speed, under a modelled interconnect, in turns.
JobRecord side_by_side() {
  RunConfig config = greedy();
  config.interconnects = {described(), std::nullopt};
  RunJournal journal(config, {.ranks = 8, .hosts = {"a"}, .transport = "shm"});
  const std::vector<Token> one = {1};
  for (const InterconnectChoice& choice : config.interconnects) {
    for (const Method method : {Method::kSpeculative, Method::kAutoregressive}) {
      const bool fast = method == Method::kSpeculative;
      journal.begin_run(method, fast ? 1 : 0, choice);
      journal.begin_output("p", {7});
      journal.append(one, "a",
                     loop(fast ? 1 : 0, 0, (fast ? 0.010 : 0.020) * (choice ? 3 : 1) / (choice && fast ? 2 : 1)));
      journal.finish_output("length");
      journal.add_modelled(
          choice ? ModelledTotals{.collectives = 20, .late = fast ? 3 : 4, .late_seconds = 0.5, .modelled_seconds = 2}
                 : ModelledTotals{});
    }
  }
  journal.finish(JobStatus::kOk);
  return journal.snapshot();
}

/// As much of JSON Schema as docs/report.schema.json uses. Adds "PATH: why" for each thing that does not fit, and each field of an
/// object with properties that the schema does not name.
class SchemaChecker {
 public:
  explicit SchemaChecker(const json& root) : root_(root) {}
  std::vector<std::string> problems;

  void check(const json& schema, const json& value, const std::string& path) {
    if (schema.contains("$ref")) {
      const auto ref = schema["$ref"].get<std::string>();
      return check(root_.at(json::json_pointer(ref.substr(1))), value, path);
    }
    if (schema.contains("const") && value != schema["const"]) problems.push_back(path + ": not the constant");
    if (schema.contains("enum") && std::count(schema["enum"].begin(), schema["enum"].end(), value) == 0) {
      problems.push_back(path + ": not in the enumeration");
    }
    if (schema.contains("oneOf")) {
      for (const json& option : schema["oneOf"]) {
        if (fits(option.at("type"), value)) return check(option, value, path);
      }
      problems.push_back(path + ": none of oneOf");
    }
    if (schema.contains("type") && !fits(schema["type"], value)) return problems.push_back(path + ": another type");
    if (value.is_array() && schema.contains("items")) {
      for (const json& item : value) check(schema["items"], item, path + "[]");
    }
    if (value.is_object() && schema.contains("properties")) check_object(schema, value, path);
  }

 private:
  static bool fits(const json& type, const json& value) {
    if (type.is_array()) {
      return std::any_of(type.begin(), type.end(), [&](const json& t) { return fits(t, value); });
    }
    const std::string name = type;
    return (name == "null" && value.is_null()) || (name == "number" && value.is_number()) ||
           (name == "integer" && value.is_number_integer()) || (name == "string" && value.is_string()) ||
           (name == "boolean" && value.is_boolean()) || (name == "array" && value.is_array()) ||
           (name == "object" && value.is_object());
  }

  void check_object(const json& schema, const json& value, const std::string& path) {
    for (const json& name : schema["required"]) {
      if (!value.contains(name.get<std::string>())) problems.push_back(path + ": no " + name.get<std::string>());
    }
    for (const auto& [name, field] : value.items()) {
      if (!schema["properties"].contains(name)) {
        problems.push_back(path + ": undocumented " + name);
      } else {
        check(schema["properties"][name], field, path + "." + name);
      }
    }
  }

  const json& root_;
};

std::vector<std::string> schema_problems(const json& report) {
  std::ifstream file(SPECDEC_SOURCE_DIR "/docs/report.schema.json");
  const json schema = json::parse(file);
  SchemaChecker checker(schema);
  checker.check(schema, report, "$");
  return checker.problems;
}

TEST(ReportJson, FitsItsSchemaAtEveryStage) {
  RunJournal journal(greedy());
  EXPECT_THAT(schema_problems(json::parse(report_json(journal.snapshot()))), ::testing::IsEmpty());
  journal.begin_run(Method::kAutoregressive, 0);
  journal.begin_output("p", {1});
  EXPECT_THAT(schema_problems(json::parse(report_json(journal.snapshot()))), ::testing::IsEmpty());
  RunJournal whole(greedy());
  record_job(whole);
  whole.finish(JobStatus::kOk);
  json report = json::parse(report_json(whole.snapshot()));
  EXPECT_THAT(schema_problems(report), ::testing::IsEmpty());
  report["runs"][0]["metrics"].erase("tokens");
  report["runs"][0]["k"] = "four";
  report["status"] = "fine";
  EXPECT_EQ(schema_problems(report).size(), 3U) << "the checker must see what is wrong";
}

TEST(ReportJson, Fields) {
  RunJournal journal(greedy());
  record_job(journal);
  journal.finish(JobStatus::kOk);
  const json report = json::parse(report_json(journal.snapshot()));
  EXPECT_EQ(report["schema"], "specdec.run");
  EXPECT_EQ(report["version"], 2);
  EXPECT_EQ(report["status"], "ok");
  ASSERT_EQ(report["runs"].size(), 2U);
  const json& run = report["runs"][1];
  EXPECT_EQ(run["method"], "speculative");
  EXPECT_EQ(run["outputs"][0]["prompt_ids"], json({7, 8}));
  EXPECT_EQ(run["outputs"][0]["token_ids"], json({1, 1, 1, 1}));
  EXPECT_EQ(run["outputs"][0]["text"], "aaaa!");
  EXPECT_EQ(run["outputs"][0]["finish_reason"], "length");
  EXPECT_DOUBLE_EQ(report["runs"][0]["outputs"][0]["ttft_ms"], 110);
  EXPECT_DOUBLE_EQ(report["comparison"]["speedup"], 1.25);
  EXPECT_EQ(report["comparison"]["identical"], true);
  EXPECT_EQ(report["config"].size(), config_keys().size());
}

TEST(ReportJson, SaysWhichFiguresAreModelled) {
  const json report = json::parse(report_json(side_by_side()));
  EXPECT_THAT(schema_problems(report), ::testing::IsEmpty());
  const json& runs = report["runs"];
  ASSERT_EQ(runs.size(), 4U) << "a run under another interconnect is another run";
  const json modelled = {{"name", "slow-wire"}, {"modelled", true}};
  const json native = {{"name", "native"}, {"modelled", false}};
  EXPECT_EQ(runs[0]["interconnect"], modelled);
  EXPECT_EQ(runs[0]["collectives"],
            json({{"total", 20}, {"late", 3}, {"late_seconds", 0.5}, {"modelled_seconds", 2.0}}));
  EXPECT_EQ(runs[3]["interconnect"], native);
  EXPECT_TRUE(runs[3]["collectives"].is_null()) << "a native run has no model to be late for";

  const json& interconnects = report["machine"]["interconnects"];
  ASSERT_EQ(interconnects.size(), 2U);
  EXPECT_EQ(interconnects[0]["name"], "slow-wire");
  EXPECT_EQ(interconnects[0]["collectives"],
            json({{"total", 40}, {"late", 7}, {"late_seconds", 1.0}, {"modelled_seconds", 4.0}}));
  EXPECT_EQ(interconnects[0]["model"]["link"]["latency_seconds"], 1.1e-6);
  EXPECT_EQ(interconnects[0]["model"]["node"]["algorithm"], "one-shot");
  EXPECT_TRUE(interconnects[1]["model"].is_null());

  const json& comparisons = report["comparisons"];
  ASSERT_EQ(comparisons.size(), 2U);
  EXPECT_EQ(comparisons[0]["interconnect"], modelled);
  EXPECT_EQ(comparisons[1]["interconnect"], native);
  EXPECT_DOUBLE_EQ(comparisons[0]["speedup"], 4) << "of modelled runs alone";
  EXPECT_DOUBLE_EQ(comparisons[1]["speedup"], 2) << "of native runs alone";
  EXPECT_EQ(report["comparison"], comparisons[0]);
}

TEST(ReportJson, BadBytesBecomeReplacementCharacters) {
  RunJournal journal(greedy());
  journal.begin_run(Method::kAutoregressive, 0);
  journal.begin_output("\xff", {1});
  EXPECT_EQ(json::parse(report_json(journal.snapshot()))["runs"][0]["outputs"][0]["prompt"], "\xef\xbf\xbd");
}

TEST(ReportJson, FailureKeepsWhatWasAccepted) {
  RunJournal journal(greedy());
  journal.begin_run(Method::kSpeculative, 1);
  journal.begin_output("p", {1});
  journal.append(std::vector<Token>{5, 6}, "so far", loop(1, 1, 0.01));
  journal.finish(JobStatus::kFailed, "rank 3 died");
  const json report = json::parse(report_json(journal.snapshot()));
  EXPECT_EQ(report["status"], "failed");
  EXPECT_EQ(report["error"], "rank 3 died");
  EXPECT_EQ(report["runs"][0]["outputs"][0]["text"], "so far");
  EXPECT_EQ(report["runs"][0]["outputs"][0]["finish_reason"], "interrupted");
  EXPECT_TRUE(report["comparison"]["speedup"].is_null());
}

TEST(ReportJson, UnwritablePathIsBadInput) {
  const RunJournal journal(greedy());
  EXPECT_EQ(tests::bad_input([&] { journal.write_json("/nonexistent-directory/out.json"); }),
            "--json: '/nonexistent-directory/out.json' cannot be written: No such file or directory");
}

TEST(ReportJson, ReplacesFilesOnly) {
  const TemporaryDirectory directory;
  const RunJournal journal(greedy());
  const auto fifo = directory.path() / "fifo";
  const auto link = directory.path() / "link";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW(journal.write_json(fifo), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_THROW(journal.write_json(directory.path()), Error);

  std::ofstream(directory.path() / "file") << "old";
  std::filesystem::create_symlink("file", link);
  journal.write_json(link);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::ifstream file(directory.path() / "file");
  EXPECT_TRUE(json::accept(file));
}

TEST(ReportJson, WhatAKilledRunLeftBesideItIsGoneAfterTheNext) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "out.json";
  const RunJournal journal(greedy());
  directory.write("out.json.tmp", R"({"schema": "spec)");
  journal.write_json(path);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_EQ(left, std::vector<std::string>{"out.json"});
  std::ifstream file(path);
  EXPECT_TRUE(json::accept(file));
}

TEST(Journal, SnapshotsAndFilesAreWholeWhileItGrows) {
  const auto path =
      std::filesystem::temp_directory_path() / ("specdec-journal-" + std::to_string(::getpid()) + ".json");
  RunJournal journal(greedy());
  journal.begin_run(Method::kSpeculative, 1);
  journal.begin_output("p", {1});
  journal.write_json(path);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done) journal.write_json(path);
  });
  std::thread reader([&] {
    for (int i = 0; i < 300; ++i) {
      std::ifstream file(path);
      EXPECT_TRUE(json::accept(file)) << "half a file was seen";
    }
  });
  const std::vector<Token> tokens = {1, 2};
  for (int i = 0; i < 500; ++i) {
    journal.append(tokens, "ab", loop(1, 1, 0.01));
    const JobRecord now = journal.snapshot();
    const OutputRecord& output = now.runs[0].outputs[0];
    EXPECT_EQ(output.token_ids.size(), output.loops.size() * 2);
    EXPECT_EQ(output.text.size(), output.token_ids.size());
  }
  reader.join();
  done = true;
  writer.join();
  std::filesystem::remove(path);
}

TEST(Journal, TheFirstEndCounts) {
  // The watchdog ends the job; the decoding thread, a moment behind, fails because the journal is closed, and ends the job too.
  RunJournal journal{RunConfig{}};
  journal.begin_run(Method::kSpeculative, 1);
  journal.begin_output("p", {7});
  journal.append(std::vector<Token>{1}, "a", loop(1, 0, 0.01));
  journal.finish(JobStatus::kFailed, "rank 1 died");
  EXPECT_THROW(journal.append(std::vector<Token>{2}, "b", loop(1, 0, 0.01)), Error);
  journal.finish(JobStatus::kOk, "journal: begin_output comes first");
  const JobRecord record = journal.snapshot();
  EXPECT_EQ(record.status, JobStatus::kFailed);
  EXPECT_EQ(record.error, "rank 1 died");
  EXPECT_EQ(record.runs[0].outputs[0].text, "a");
}

TEST(Journal, RefusesCallsOutOfOrder) {
  RunJournal journal(greedy());
  EXPECT_THROW(journal.begin_output("p", {1}), Error);
  journal.begin_run(Method::kAutoregressive, 0);
  EXPECT_THROW(journal.append({}, "", {}), Error);
  journal.begin_output("p", {1});
  EXPECT_THROW(journal.begin_output("p", {1}), Error);
  journal.finish_output("eos");
  EXPECT_THROW(journal.append({}, "", {}), Error);
}

TEST(Report, LabelsEveryModelledFigure) {
  const std::string text = report_text(side_by_side());
  EXPECT_THAT(text, HasSubstr("Interconnect modelled slow-wire, on top of the shm transport: a test\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("speculative, K=1 +autoregressive +speculative, K=1 +autoregressive\n"
                                             " +modelled slow-wire +modelled slow-wire +native +native\n"
                                             "ms per token +15 +60 +10 +20\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("late collectives +3 of 20 +4 of 20 +- +-\n"));
  EXPECT_THAT(text, HasSubstr("A loop of speculative decoding, modelled slow-wire, mean of 1:"));
  EXPECT_THAT(text, HasSubstr("A loop of autoregressive decoding, native, mean of 1:"));
  EXPECT_THAT(text,
              HasSubstr("\nLate, modelled slow-wire: 7 of 40 collectives, by 1000.0 ms together, where all should "
                        "have taken 4000.0 ms.\n"));
  EXPECT_THAT(text, HasSubstr("Speed-up, modelled slow-wire: 4;"));
  EXPECT_THAT(text, HasSubstr("Speed-up, native: 2;"));
}

TEST(Report, NamesTheTypesOfWeights) {
  const auto text_of = [](const std::string& target, const std::string& draft) {
    RunJournal journal(greedy(), {.ranks = 1, .dtype = target, .draft_dtype = draft});
    record_job(journal);
    return report_text(journal.snapshot());
  };
  EXPECT_THAT(text_of("int8", "int8"), HasSubstr(", weights in int8\n"));
  EXPECT_THAT(text_of("int8", ""), HasSubstr(", weights in int8\n"));
  EXPECT_THAT(text_of("bf16", "int8"), HasSubstr(", weights in bf16, the draft's in int8\n"));
}

TEST(Report, SaysHowMuchAndWhy) {
  RunJournal journal(greedy(), {.ranks = 8,
                                .hosts = {"a", "b"},
                                .cpus = {"EPYC"},
                                .threads = 1,
                                .backend = "cpu (x)",
                                .transport = "mpi",
                                .dtype = "bf16"});
  record_job(journal);
  const std::string text = report_text(journal.snapshot());
  EXPECT_THAT(text, HasSubstr("8 ranks on a, b (EPYC; mpi transport), cpu (x), threads a rank: 1, weights in bf16"));
  EXPECT_THAT(text, ::testing::ContainsRegex("ms per token +10 +8\n"));
  EXPECT_THAT(text, HasSubstr("Speed-up: 1.25"));
  EXPECT_THAT(text, Not(HasSubstr("Late")));
  EXPECT_THAT(text, Not(HasSubstr("native"))) << "a job that is all measured needs no label";
  EXPECT_THAT(text, HasSubstr("Greedy texts identical: yes"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "Why: speculation was faster because a loop gives 2.00 tokens (alpha 1.000) and costs 1.60 times a "
          "token alone: drafting 1.0 tokens a loop at c = 0.100 each, and scoring K+1 rows at 1.00 times the pass "
          "over one row."));
}

}  // namespace
}  // namespace specdec
