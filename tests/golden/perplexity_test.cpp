// What int8 costs in perplexity, on text that the shipped models were not trained on, beside what the size of its steps lets one expect.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "models/tokenizer.h"
#include "tests/golden/golden.h"
#include "tests/support/human_eval.h"

namespace specdec::golden {
namespace {

/// Solutions with their problems that fit the models' context.
constexpr std::size_t kTexts = 24;

std::vector<std::vector<Token>> texts(const std::filesystem::path& directory) {
  const auto tokenizer = load_tokenizer(directory);
  const std::int64_t context = load_model_config(directory).context;
  std::vector<std::vector<Token>> all;
  for (const nlohmann::json& problem : tests::human_eval()) {
    std::vector<Token> tokens =
        tokenizer->encode(problem["prompt"].get<std::string>() + problem["canonical_solution"].get<std::string>());
    if (static_cast<std::int64_t>(tokens.size()) <= context && all.size() < kTexts) {
      all.push_back(std::move(tokens));
    }
  }
  return all;
}

struct Score {
  double nats = 0;     ///< of all tokens but the first of each text
  double squares = 0;  ///< of the logits' distances to the mean of their row
  std::size_t logits = 0;
  std::size_t predicted = 0;
};

Score score(const std::filesystem::path& directory, DType dtype) {
  const auto vocabulary = static_cast<std::size_t>(load_model_config(directory).vocabulary);
  Score score;
  for (const std::vector<Token>& tokens : texts(directory)) {
    const Result result = run_model(directory, tokens, {.backend = "cpu", .dtype = dtype});
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
      const std::span row = std::span(result.logits).subspan(t * vocabulary, vocabulary);
      score.nats += static_cast<double>(result.logsumexp[t]) - row[static_cast<std::size_t>(tokens[t + 1])];
      double mean = 0;
      for (const float logit : row) {
        mean += logit / static_cast<double>(vocabulary);
      }
      for (const float logit : row) {
        score.squares += (logit - mean) * (logit - mean);
      }
      score.logits += vocabulary;
      ++score.predicted;
    }
  }
  return score;
}

class Perplexity : public ::testing::TestWithParam<std::string> {};

/// docs/numerics.md, "int8": logits that are off by independent errors of deviation d cost d^2 / 2 nats a token at most on average, and the mean over N
/// tokens, each of which deviates by 2 d at most, is within five deviations of it.
TEST_P(Perplexity, OfInt8IsNearThatOfF32) {
  const std::filesystem::path directory = kAssets / GetParam();
  const ModelConfig config = load_model_config(directory);
  const Score f32 = score(directory, DType::kF32);
  const Score int8 = score(directory, DType::kInt8);
  ASSERT_GT(f32.predicted, 1000U);
  const auto tokens = static_cast<double>(f32.predicted);
  const double d = rounding_error(DType::kInt8) * std::sqrt(2.0 * static_cast<double>(4 * config.layers + 1)) *
                   std::sqrt(f32.squares / static_cast<double>(f32.logits));
  const double bound = d * d / 2 + 5 * 2 * d / std::sqrt(tokens);
  const double more = (int8.nats - f32.nats) / tokens;
  RecordProperty("nats_more", std::to_string(more) + " of " + std::to_string(bound));
  EXPECT_LE(std::fabs(more), bound) << "perplexity " << std::exp(f32.nats / tokens) << " in f32, "
                                    << std::exp(int8.nats / tokens) << " in int8";
  EXPECT_NE(int8.nats, f32.nats) << "or nothing was quantised";
  EXPECT_LE(bound, 0.15) << "a bound that allows more says little";
}

INSTANTIATE_TEST_SUITE_P(Shipped, Perplexity, ::testing::Values("manpy-11m", "manpy-2m", "manpy-0.5m"),
                         [](const auto& value) {
                           std::string name = value.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace specdec::golden
