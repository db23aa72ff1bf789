/// Speculative sampling from a real model, over 1, 2 and 4 ranks, has the target's own distribution: the first three tokens of
/// 200,000 samples against the enumerated one. Each of the chi-square tests below raises a false alarm with probability 1e-6, if the
/// seeds were drawn anew; with the fixed seeds they pass or fail for good.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/decode_harness.h"
#include "tests/support/enumerated_distribution.h"
#include "tests/support/random_model.h"
#include "tests/support/shm_ranks.h"

namespace specdec::tests {
namespace {

constexpr std::int64_t kSamples = 200'000;
constexpr std::size_t kBins = 600;

struct Setting {
  const char* name;
  SamplingParams sampling;
  DraftLengthRule draft_length = DraftLengthRule::kFixed;
};

const Setting kSettings[] = {
    {"plain", {.temperature = 1.0F}},
    {"temperature", {.temperature = 0.7F}},
    {"topk", {.temperature = 1.3F, .top_k = 12}},
    {"topp", {.temperature = 0.9F, .top_p = 0.8F}},
};

class SamplingDistribution : public ::testing::TestWithParam<std::tuple<int, Setting>> {};

/// Triples are too many to count one by one; a hash deals them into bins whose probabilities are summed exactly.
std::size_t bin_of(Token a, Token b, Token c) {
  const std::uint64_t x = (static_cast<std::uint64_t>(a) * 1000003U + static_cast<std::uint64_t>(b)) * 1000003U +
                          static_cast<std::uint64_t>(c);
  return static_cast<std::size_t>((x * 0x9E3779B97F4A7C15U) >> 33) % kBins;
}

TEST_P(SamplingDistribution, FirstThreeTokens) {
  const auto& [ranks, setting] = GetParam();
  const TemporaryDirectory directory;
  RandomModel model{.layers = 1,
                    .d_model = 16,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 4,
                    .feed_forward = 64,
                    .vocabulary = 130,
                    .context = 8,
                    .seed = 11};
  write_random_model(model, directory.path() / "target");
  model.noise = 0.4F;
  write_random_model(model, directory.path() / "draft");
  const std::vector<Token> prompt{5};
  const DecodeCase settings{.target = directory.path() / "target",
                            .draft = directory.path() / "draft",
                            .kind = DraftKind::kModel,
                            .k = 2,
                            .draft_length = setting.draft_length,
                            .loop_times = {1, 1.45, 1.8},
                            .sampling = setting.sampling,
                            .seed = 99,
                            .rules = {.max_new_tokens = 3}};

  std::vector<double> first(130);
  std::vector<double> triples(kBins);
  std::int64_t accepted = 0;
  std::int64_t reached = 0;
  run_over_shm(ranks, {.cores = static_cast<int>(std::thread::hardware_concurrency())}, [&](Communicator& group) {
    DecodeRank rank(group, settings);
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const DecodeResult sample = rank.run(settings, prompt, static_cast<std::uint32_t>(i), false);
      if (group.rank() == 0) {
        first[static_cast<std::size_t>(sample.tokens[0])] += 1;
        triples[bin_of(sample.tokens[0], sample.tokens[1], sample.tokens[2])] += 1;
        for (const LoopRecord& loop : sample.loops) {
          accepted += loop.accepted;
          reached += loop.reached;
        }
      }
    }
  });
  // Neither all drafts stand nor none, else the rule was not exercised.
  EXPECT_GT(accepted, reached / 10);
  EXPECT_LT(accepted, reached * 19 / 20);

  const EnumeratedDistribution exact(settings.target, prompt, setting.sampling, DType::kBF16);
  std::vector<double> expected_first(130);
  std::vector<double> expected_triples(kBins);
  for (Token a = 0; a < 130; ++a) {
    expected_first[static_cast<std::size_t>(a)] = kSamples * exact.first(a);
    for (Token b = 0; exact.first(a) > 0 && b < 130; ++b) {
      for (Token c = 0; c < 130; ++c) {
        expected_triples[bin_of(a, b, c)] += kSamples * exact.joint(a, b, c);
      }
    }
  }
  std::int64_t degrees = 0;
  const double of_first = chi_square(first, expected_first, degrees);
  EXPECT_LT(of_first, chi_square_limit(degrees)) << "first token, " << degrees << " degrees of freedom";
  const double of_triples = chi_square(triples, expected_triples, degrees);
  EXPECT_LT(of_triples, chi_square_limit(degrees)) << "three tokens, " << degrees << " degrees of freedom";
}

std::string name(const ::testing::TestParamInfo<std::tuple<int, Setting>>& info) {
  return std::string(std::get<1>(info.param).name) + "_" + std::to_string(std::get<0>(info.param)) + "ranks";
}

// A K that follows what earlier rounds showed: after a rejection it is another one than after none.
INSTANTIATE_TEST_SUITE_P(
    AdaptiveK, SamplingDistribution,
    ::testing::Combine(::testing::Values(1),
                       ::testing::Values(Setting{"heuristic", {.temperature = 1.0F}, DraftLengthRule::kHeuristic},
                                         Setting{"optimal", {.temperature = 0.7F}, DraftLengthRule::kOptimal})),
    name);

INSTANTIATE_TEST_SUITE_P(Composed, SamplingDistribution,
                         ::testing::Combine(::testing::Values(1, 4),
                                            ::testing::Values(Setting{
                                                "topktopp", {.temperature = 1.1F, .top_k = 40, .top_p = 0.9F}})),
                         name);

INSTANTIATE_TEST_SUITE_P(RanksAndWarps, SamplingDistribution,
                         ::testing::Combine(::testing::Values(1, 2), ::testing::ValuesIn(kSettings)), name);

// A minute each: of four ranks, what travels as statistics of slices and, above, what travels as whole rows.
INSTANTIATE_TEST_SUITE_P(FourRanks, SamplingDistribution,
                         ::testing::Combine(::testing::Values(4), ::testing::Values(kSettings[1])), name);

}  // namespace
}  // namespace specdec::tests
