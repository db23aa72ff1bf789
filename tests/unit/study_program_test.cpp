// specdec_study as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/local_program.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kPredict = "--predict --hardware tpu-v4x16 --config chinchilla-70b.yaml --alpha 0.884 ";

class StudyProgram : public ::testing::Test {
 protected:
  const tests::LocalProgram program_{"specdec_study"};
};

TEST_F(StudyProgram, PredictsAsATableAndAsJson) {
  const std::string file = (program_.folder() / "f.json").string();
  const auto result = program_.run(kPredict + "--k 0..7 --json '" + file + "'");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("Predicted, not measured: chinchilla-70b with draft chinchilla-4b (sharded)"),
                    HasSubstr("Chen et al. 2023"), HasSubstr("  best\n")));
  const nlohmann::json found = nlohmann::json::parse(tests::LocalProgram::contents(file));
  EXPECT_EQ(found["kind"], "predicted");
  EXPECT_EQ(found["ranks"], 16);
  ASSERT_EQ(found["rows"].size(), 8U);
  const nlohmann::json& four = found["rows"][4];
  EXPECT_EQ(four["k"], 4);
  EXPECT_NEAR(four["ms_per_token"].get<double>(), 5.73, 0.05 * 5.73) << "Chen et al. 2023, table 1";
  EXPECT_NEAR(four["ms_per_loop"].get<double>() / four["tokens_per_loop"].get<double>(),
              four["ms_per_token"].get<double>(), 1e-9);
  EXPECT_NEAR(four["speedup"].get<double>(), 2.46, 0.05 * 2.46);
  for (const char* key : {"p50_ms", "p90_ms", "p99_ms", "variance_ms2"}) EXPECT_TRUE(four[key].is_number()) << key;
  double sum = 0;
  for (const auto& [part, ms] : four["split_ms"].items()) sum += ms.get<double>();
  EXPECT_NEAR(sum, four["ms_per_loop"].get<double>(), 1e-9);
  EXPECT_TRUE(found["best_k"].is_number_integer());
}

TEST_F(StudyProgram, TakesOtherRanksAndListsOfK) {
  const std::string file = (program_.folder() / "f.json").string();
  const auto result = program_.run(kPredict + "--ranks 4 --k 1,8 --json '" + file + "'");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json found = nlohmann::json::parse(tests::LocalProgram::contents(file));
  EXPECT_EQ(found["ranks"], 4);
  EXPECT_EQ(found["rows"].size(), 2U);
  EXPECT_EQ(found["rows"][1]["k"], 8);
}

TEST_F(StudyProgram, PlacesTheDraftAsTheConfigSaysUnlessTold) {
  EXPECT_THAT(program_.run(kPredict + "--placement rank0").out, HasSubstr("with draft chinchilla-4b (rank0)"));
  const std::string dedicated = program_.folder() / "dedicated.yaml";
  std::ofstream(dedicated) << "target: manpy-11m\ndraft: manpy-2m\nplacement: dedicated\nprompts: [{random: 8}]\n";
  const std::string predict = "--predict --hardware tpu-v4x16 --alpha 0.5 --config '" + dedicated + "' --ranks ";
  EXPECT_THAT(program_.run(predict + "3").out, HasSubstr("with draft manpy-2m (dedicated)"));
  program_.expect_error(predict + "1", "dedicated.yaml: placement: found dedicated with 1 rank");
}

TEST_F(StudyProgram, ErrorsAreOneLineAndExitCodeTwo) {
  program_.expect_error("", "--config: found nothing, expected a study");
  program_.expect_error("--predict --plan --config x", "found more than one of --plan, --report, --predict");
  program_.expect_error("--config study-shipped.yaml --k 0..7", "--k: found without --predict");
  program_.expect_error("--config study-shipped.yaml --launcher x", "--launcher: found without --calibrate");
  program_.expect_error("--config study-shipped.yaml --repeats 2", "--repeats: found without --calibrate");
  program_.expect_error("--calibrate 1 --repeats 0 --config chinchilla-like-native.yaml",
                        "--repeats: found 0, expected 1 to 1000");
  program_.expect_error("--calibrate 0 --config chinchilla-like-native.yaml", "--calibrate: found 0");
  program_.expect_error("--config study-shiped.yaml", "did you mean 'study-shipped.yaml'?");
  program_.expect_error("--predict --hardware tpu-v4x16 --config chinchilla-70b.yaml", "--alpha: found nothing");
  program_.expect_error("--predict --config chinchilla-70b.yaml --alpha 0.5", "--hardware: found nothing");
  program_.expect_error("--predict --hardware tpu-v4x16 --alpha 0.5", "--config: found nothing");
  program_.expect_error("--predict --hardware tpu-v4x16 --config chinchilla-70b.yaml --alpha 1.5",
                        "--alpha: found 1.5, expected a number from 0 to 1");
  program_.expect_error("--predict --hardware tpu-v4x16 --config chinchilla-70b.yaml --alpha nan",
                        "--alpha: found nan");
  program_.expect_error(kPredict + "--k 7..0", "--k: found '7..0', expected the smaller number first");
  program_.expect_error(kPredict + "--k x", "--k: found 'x', expected whole numbers from 0 to 1024");
  program_.expect_error(kPredict + "--ranks 0", "--ranks: found 0");
  program_.expect_error(kPredict + "--ranks 17", "--ranks: found 17, expected at most 16, which is what tpu-v4x16 has");
  program_.expect_error(kPredict + "--placement rank", "--placement: found 'rank', expected one of rank0");
  program_.expect_error(kPredict + "--placement dedicated --ranks 1", "--placement: found dedicated with 1 rank");
  program_.expect_error(kPredict + "--context 2048", "--context: found 2048, expected at most 2047");
  program_.expect_error("--predict --hardware tpu-v4x8 --config chinchilla-70b.yaml --alpha 0.5",
                        "--hardware: found no file 'tpu-v4x8'");
  const std::string alone = program_.folder() / "alone.yaml";
  std::ofstream(alone) << "target: manpy-11m\ndecode: {method: autoregressive}\nprompts: [{random: 8}]\n";
  program_.expect_error("--predict --hardware tpu-v4x16 --alpha 0.5 --config '" + alone + "'",
                        "alone.yaml: draft: found nothing, expected the model that drafts");
  const std::string odd = program_.folder() / "odd.yaml";
  std::ofstream(odd) << "source: a book\nranks: 2\nread_GBps: 10\ntflops: 1\nlayer_su: 3\n";
  program_.expect_error("--predict --hardware '" + odd + "' --config chinchilla-70b.yaml --alpha 0.5",
                        "odd.yaml:5: unknown key 'layer_su'; did you mean 'layer_us'?");
  std::ofstream(odd) << "source: a book\nranks: 2\nread_GBps: 10\ntflops: 1\n";
  program_.expect_error("--predict --hardware '" + odd + "' --config chinchilla-70b.yaml --alpha 0.5",
                        "interconnect: found nothing beside ranks: 2");
  std::ofstream(odd) << "source: a book\nranks: 2\ntflops: 1\n";
  program_.expect_error("--predict --hardware '" + odd + "' --config chinchilla-70b.yaml --alpha 0.5",
                        "read_GBps: found nothing, expected a number");
}

TEST_F(StudyProgram, HelpAndVersion) {
  EXPECT_THAT(program_.run("--help").out, AllOf(HasSubstr("--predict"), HasSubstr("--hardware"), HasSubstr("--alpha")));
  EXPECT_THAT(program_.run("--version").out, StartsWith("specdec_study "));
}

}  // namespace
}  // namespace specdec
