// specdec_score as a user runs it, alone and under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/golden/golden.h"
#include "tests/unit/model_files.h"

namespace specdec::golden {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

class ScoreProgram : public ::testing::Test {
 protected:
  Outcome run(const std::string& flags, int ranks = 1) const {
    const std::string program = std::string(SPECDEC_BINARY_DIR) + "/bin/specdec_score";
    // As SpecdecMpiTest.cmake: more ranks than cores, and root in containers.
    const std::string mpirun =
        ranks == 1 ? ""
                   : "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
                     "OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none mpirun -np " +
                         std::to_string(ranks) + " ";
    const std::string command = mpirun + "'" + program + "' " + flags + " >" + path("out") + " 2>" + path("err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents("out"), contents("err")};
  }
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  std::string contents(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write_ids(const std::vector<Token>& tokens) const {
    std::string text;
    for (const Token token : tokens) {
      text += std::to_string(token) + (text.size() % 3 == 0 ? "\n" : " ");
    }
    directory_.write("ids", text);
  }

  const tests::TemporaryDirectory directory_;
};

TEST_F(ScoreProgram, WritesTheLogitsOfEveryPosition) {
  const std::filesystem::path model = kModels / "llama-f16-llama3-new";
  const auto expected = read_values(model / "expected");
  const std::vector<Token> tokens = as_tokens(expected.at("tokens"));
  const std::vector<float>& logits = expected.at("logits");
  const std::int64_t vocabulary = load_model_config(model).vocabulary;
  write_ids(tokens);
  const std::string flags = "--model '" + model.string() + "' --dtype f32 --ids " + path("ids") + " --logits ";
  const Outcome alone = run(flags + path("alone.npy"));
  ASSERT_EQ(alone.code, 0) << alone.err;

  const std::string file = contents("alone.npy");
  ASSERT_EQ(file.size() % 64, (logits.size() * sizeof(float)) % 64) << "a header of whole 64 bytes, then the logits";
  EXPECT_THAT(file, HasSubstr("(34, 193)"));
  std::vector<float> written(logits.size());
  std::memcpy(written.data(), file.data() + file.size() - logits.size() * sizeof(float), logits.size() * sizeof(float));
  EXPECT_TRUE(written == run_model(model, tokens, {.backend = "cpu"}).logits);

  double log_likelihood = 0;
  for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
    double sum = 0;
    for (std::int64_t id = 0; id < vocabulary; ++id) {
      sum += std::exp(static_cast<double>(logits[t * vocabulary + id]));
    }
    log_likelihood += logits[t * vocabulary + tokens[t + 1]] - std::log(sum);
  }
  const auto number_after = [&](const std::string& key) {
    const std::size_t at = alone.out.find(key);
    return at == std::string::npos ? NAN : std::stod(alone.out.substr(at + key.size()));
  };
  const auto predicted = static_cast<double>(tokens.size() - 1);
  EXPECT_EQ(number_after("tokens"), predicted + 1);
  EXPECT_NEAR(number_after("log-likelihood"), log_likelihood, 1e-3);
  EXPECT_NEAR(number_after("perplexity"), std::exp(-log_likelihood / predicted), 1e-2);

  const Outcome cut = run(flags + path("cut.npy"), 4);
  EXPECT_EQ(cut.code, 0) << cut.err;
  EXPECT_EQ(cut.out, alone.out);
  EXPECT_TRUE(contents("cut.npy") == file) << "the same bits on four ranks";
}

TEST_F(ScoreProgram, EncodesTextWithoutSpecialTokens) {
  directory_.write("text", "def f(x):\n    return x\n");
  const Outcome outcome =
      run("--model '" + (kAssets / "manpy-0.5m").string() + "' --text-file " + path("text") + " --backend reference");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("weights         bf16\ntokens "), HasSubstr("perplexity")));
}

TEST_F(ScoreProgram, OneTokenIsPredictedByNothing) {
  directory_.write("ids", "7");
  const Outcome outcome = run("--model '" + (kAssets / "manpy-0.5m").string() + "' --ids " + path("ids"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 (0 predicted)"));
}

TEST_F(ScoreProgram, BadInputIsOneLineAndCodeTwo) {
  const std::string model = "--model '" + (kAssets / "manpy-0.5m").string() + "' ";
  directory_.write("bad-ids", "1 2 x");
  directory_.write("large-id", "4096");
  directory_.write("empty", "");
  directory_.write("not-utf8", "abc\xff");
  std::string many;
  for (int i = 0; i < 513; ++i) {
    many += "5 ";
  }
  directory_.write("long", many);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {model, "--text-file,--ids"},
      {model + "--ids " + path("absent"), "absent: found no such file"},
      {model + "--ids " + path("bad-ids"), "id 3: found 'x'"},
      {model + "--ids " + path("large-id"), "expected a number from 0 to 4095"},
      {model + "--ids " + path("empty"), "found 0 tokens"},
      {model + "--ids " + path("long"), "found 513 tokens, expected 1 to 512"},
      {model + "--text-file " + path("not-utf8"), "not-utf8"},
      {model + "--ids " + path("bad-ids") + " --dtype f61", "--dtype"},
      {"--model /nonexistent --ids " + path("ids"), "/nonexistent"},
      {"--model '" + kModels.string() + "' --ids " + path("ids"), "config.json"},
  };
  for (const auto& [flags, expected] : cases) {
    const Outcome outcome = run(flags);
    EXPECT_EQ(outcome.code, 2) << flags;
    EXPECT_EQ(outcome.out, "") << flags;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("specdec_score: error: "), HasSubstr(expected))) << flags;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  const Outcome cut = run(cases[2].first, 3);
  EXPECT_EQ(cut.code, 2);
  const std::size_t first = cut.err.find("specdec_score: error: ");
  ASSERT_NE(first, std::string::npos) << cut.err;
  EXPECT_EQ(cut.err.find("specdec_score: error: ", first + 1), std::string::npos) << "once, not from every rank";
}

}  // namespace
}  // namespace specdec::golden
