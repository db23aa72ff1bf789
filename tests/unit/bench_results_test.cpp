#include "runtime/bench_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "backend/error.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using tests::TemporaryDirectory;

BenchRow row() {
  return {.transport = "shm",
          .operation = "fixed tree, each sum rounded to bf16",
          .interconnect = "native",
          .ranks = 4,
          .bytes = 16384,
          .dtype = "bf16",
          .iterations = 50,
          .seconds = {.p50 = 8e-6, .p90 = 9e-6, .p99 = 1e-5, .max = 2e-5, .mean = 8.5e-6},
          .wrong = 3,
          .over_baseline = 0.25};
}

BenchHeader header() {
  return {.version = "allreduce_bench 1",
          .ranks = {{.host = "a", .cpu = "CPU", .kernel = "Linux", .cores = "0-1", .core_count = 2, .host_cores = 4},
                    {.host = "a", .cpu = "CPU", .kernel = "Linux", .cores = "0-1", .core_count = 2, .host_cores = 4},
                    {.host = "b", .cpu = "CPU", .kernel = "Linux", .cores = "3", .core_count = 1, .host_cores = 4}},
          .interconnect = {},
          .decode = ""};
}

std::string content(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(BenchResults, JsonHasTheFieldsOfTheRow) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "out.json";
  BenchResults results(header(), file, "");
  EXPECT_EQ(json::parse(content(file))["status"], "running") << "there from the start";
  results.add({row(), row()});
  results.write(JobStatus::kFailed, "rank 1 was lost");
  const json report = json::parse(content(file));
  EXPECT_EQ(report["status"], "failed");
  EXPECT_EQ(report["error"], "rank 1 was lost");
  EXPECT_EQ(report["interconnect"]["kind"], "native");
  ASSERT_EQ(report["ranks"].size(), 3U);
  EXPECT_EQ(report["ranks"][2]["host"], "b");
  EXPECT_EQ(report["ranks"][2]["cores"], "3");
  ASSERT_EQ(report["rows"].size(), 2U);
  const json& first = report["rows"][0];
  EXPECT_EQ(first["transport"], "shm");
  EXPECT_EQ(first["ranks"], 4);
  EXPECT_EQ(first["bytes"], 16384);
  EXPECT_EQ(first["dtype"], "bf16");
  EXPECT_DOUBLE_EQ(first["p50_us"], 8);
  EXPECT_DOUBLE_EQ(first["p90_us"], 9);
  EXPECT_DOUBLE_EQ(first["p99_us"], 10);
  EXPECT_DOUBLE_EQ(first["max_us"], 20);
  EXPECT_DOUBLE_EQ(first["mean_us"], 8.5);
  EXPECT_DOUBLE_EQ(first["algbw_GBps"], 2.048);
  EXPECT_DOUBLE_EQ(first["busbw_GBps"], 2.048 * 1.5);
  EXPECT_EQ(first["wrong"], 3);
  EXPECT_DOUBLE_EQ(first["over_mpi"], 0.25);
  EXPECT_TRUE(first["modelled_us"].is_null());
  EXPECT_EQ(results.wrong(), 6);
}

TEST(BenchResults, CsvHasOneLineARowAndQuotesCommas) {
  std::istringstream lines(bench_csv({row()}));
  std::string names;
  std::string values;
  std::getline(lines, names);
  std::getline(lines, values);
  EXPECT_THAT(names, HasSubstr("transport,operation,interconnect,ranks,bytes,tokens,dtype,iterations,"
                               "p50_us,p90_us,p99_us,max_us,mean_us,algbw_GBps,busbw_GBps,wrong,"));
  EXPECT_THAT(values, HasSubstr("all_reduce,shm,\"fixed tree, each sum rounded to bf16\",native,4,16384,,bf16,50,"
                                "8,9,10,20,8.5,2.048,3.072,3,0.25,"));
  EXPECT_FALSE(std::getline(lines, names));
}

TEST(BenchResults, ABandwidthIsThatOfOneAllReduce) {
  BenchRow token = row();
  token.what = "token";
  EXPECT_THAT(bench_csv({token}), HasSubstr(",8.5,,,3,")) << "no bandwidth of a whole token";
}

TEST(BenchResults, AReplayIsOfOneAllReduceAndSaysHowManyItHad) {
  BenchRow replay = row();
  replay.what = std::string(kReplay) + "32";
  replay.over_baseline.reset();
  EXPECT_THAT(bench_csv({replay}), HasSubstr("\nreplay/32,shm,"));
  EXPECT_THAT(bench_csv({replay}), HasSubstr(",8.5,2.048,3.072,3,,")) << "a bandwidth, and no ratio to a host's time";
  EXPECT_THAT(bench_table_row(replay), HasSubstr("  replay/32 "));
  EXPECT_EQ(bench_table_row(replay).size(), bench_table_head(false).size());
  BenchHeader on_device = header();
  on_device.on_device = true;
  EXPECT_THAT(bench_header_text(on_device), HasSubstr("\n# replay/N: "));
  EXPECT_THAT(bench_header_text(header()), ::testing::Not(HasSubstr("replay")));
}

TEST(BenchResults, TheHeaderSaysOnceWhereRanksAreAlike) {
  const std::string text = bench_header_text(header());
  EXPECT_THAT(text, HasSubstr("# ranks 0-1 on a: CPU, Linux; each may run on 2 of 4 cores (0-1)\n"));
  EXPECT_THAT(text, HasSubstr("# rank 2 on b: CPU, Linux; each may run on 1 of 4 cores (3)\n"));
  EXPECT_THAT(text, HasSubstr("# interconnect: native\n"));
  BenchHeader modelled = header();
  modelled.interconnect = Interconnect{.name = "wire", .source = "a book"};
  EXPECT_THAT(bench_header_text(modelled), HasSubstr("# interconnect: modelled wire (a book)\n"));
}

TEST(BenchResults, TablesShowWrongElementsAndTheRatio) {
  const std::string line = bench_table_row(row());
  EXPECT_THAT(line, HasSubstr("      3  0.250\n"));
  BenchRow modelled = row();
  modelled.over_baseline.reset();
  modelled.modelled_seconds = 7e-6;
  modelled.late = 12;
  EXPECT_THAT(bench_table_row(modelled), HasSubstr(" 7.00     12\n"));
  EXPECT_EQ(bench_table_row(modelled).size(), bench_table_head(true).size());
  EXPECT_EQ(line.size(), bench_table_head(false).size());
}

TEST(BenchResults, TheFirstEndCounts) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "out.json";
  BenchResults results(header(), file, "");
  results.write(JobStatus::kFailed, "rank 1 died");
  results.write(JobStatus::kOk, "");
  const json found = json::parse(std::ifstream(file));
  EXPECT_EQ(found["status"], "failed");
  EXPECT_EQ(found["error"], "rank 1 died");
}

TEST(BenchResults, AFileThatCannotBeWrittenShowsBeforeTheWork) {
  EXPECT_THROW(BenchResults(header(), "/nowhere/out.json", ""), Error);
  EXPECT_THROW(BenchResults(header(), "", "/nowhere/out.csv"), Error);
}

}  // namespace
}  // namespace specdec
