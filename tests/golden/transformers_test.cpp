// What transformers computes: logits of prefill and of decoding with the cache, and greedy tokens, for both families in the forms in which
// they are published, on 1 to 4 ranks and on both backends.

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace specdec::golden {
namespace {

struct Case {
  std::string model;
  std::string backend;
  int ranks = 1;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " on " << c.ranks << " ranks, " << c.backend; }

class Transformers : public ::testing::TestWithParam<Case> {};

TEST_P(Transformers, LogitsAndGreedyTokensAgree) {
  const auto& [name, backend, ranks] = GetParam();
  const ModelConfig config = load_model_config(kModels / name);
  ASSERT_TRUE(splits(config, ranks));
  const auto expected = read_values(kModels / name / "expected");
  const std::vector<Token> tokens = as_tokens(expected.at("tokens"));
  const auto prompt = static_cast<std::int64_t>(expected.at("prompt_tokens")[0]);
  const std::vector<float>& logits = expected.at("logits");

  const Result result = run_model(kModels / name, tokens, {.ranks = ranks, .backend = backend, .first_block = prompt});
  const double bound = rounding_bound(config, logits);
  EXPECT_LE(largest_difference(result.logits, logits), bound);
  for (std::size_t i = prompt; i < tokens.size(); ++i) {
    EXPECT_EQ(result.argmax[i - 1], tokens[i]) << "greedy token " << i;
  }
  // The bound itself: it covers the rounding that transformers itself was seen to make, and is not so wide that a mistake fits in.
  EXPECT_GE(bound, 2.0 * expected.at("rounding")[0]);
  EXPECT_LE(bound, 100.0 * expected.at("rounding")[0]);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : model_names()) {
    for (const int ranks : {1, 2, 3, 4}) {
      all.push_back({model, "reference", ranks});
      all.push_back({model, "cpu", ranks});
    }
  }
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + info.param.backend + "_" + std::to_string(info.param.ranks);
  for (char& c : name) {
    c = c == '-' ? '_' : c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, Transformers, ::testing::ValuesIn(cases()), case_name);

class Shipped : public ::testing::TestWithParam<std::string> {};

TEST_P(Shipped, LogitsAgreeOnRealText) {
  const ModelConfig config = load_model_config(kAssets / GetParam());
  const auto expected = read_values(kShipped / GetParam());
  const std::vector<Token> tokens = as_tokens(expected.at("tokens"));
  const std::vector<Token> ids = as_tokens(expected.at("ids"));
  const Result result = run_model(kAssets / GetParam(), tokens, {.ranks = 2, .backend = "cpu"});
  std::vector<float> chosen;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (const Token id : ids) {
      chosen.push_back(result.logits.at(t * config.vocabulary + id));
    }
  }
  const double bound = rounding_bound(config, expected.at("logits"));
  EXPECT_LE(largest_difference(chosen, expected.at("logits")), bound);
  EXPECT_LE(largest_difference(result.logsumexp, expected.at("logsumexp")), bound)
      << "all of the vocabulary, since one wrong logit moves its row's sum";
  EXPECT_GE(bound, 2.0 * expected.at("rounding")[0]);
  EXPECT_LE(bound, 100.0 * expected.at("rounding")[0]);
}

INSTANTIATE_TEST_SUITE_P(Golden, Shipped, ::testing::Values("manpy-11m", "manpy-2m", "manpy-0.5m"));

}  // namespace
}  // namespace specdec::golden
