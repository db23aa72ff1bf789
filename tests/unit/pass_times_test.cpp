/// Passes of models alone, as a calibration times them.
#include "runtime/pass_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/pass_work.h"
#include "tests/support/bad_input.h"
#include "tests/support/source_directory.h"

namespace specdec {
namespace {

using tests::kSource;

RunConfig smallest() {
  RunConfig config;
  config.target = config.draft = kSource / "assets/manpy-0.5m";
  config.decode.max_new_tokens = 16;
  return config;
}

TEST(PassTimes, AreOfTheThreadsThatARankHasInAJob) {
  constexpr std::int64_t kRanks[] = {1, 2, 4};
  const std::map<int, PassTimes> found = time_passes(smallest(), kRanks, 2);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found.at(1).threads, 2);
  EXPECT_EQ(found.at(2).threads, 1);
  EXPECT_EQ(found.at(4).threads, 1) << "ranks that share a core have a thread each";
  for (const auto& [ranks, times] : found) {
    const auto sizes = {std::ssize(times.target), std::ssize(times.draft), std::ssize(times.beside.scored) + 1};
    EXPECT_THAT(sizes, ::testing::Each(kTimedRows)) << ranks;
    const auto compared = {std::ssize(times.target_after_smaller), std::ssize(times.after_more_keys)};
    EXPECT_THAT(compared, ::testing::Each(kComparedRows)) << ranks;
    for (const std::vector<double>& of : {times.target, times.target_after_smaller, times.draft, times.beside.scored}) {
      EXPECT_TRUE(std::ranges::all_of(of, [](double seconds) { return seconds > 0; })) << ranks;
    }
    EXPECT_GT(times.whole_target, 0) << ranks;
    EXPECT_GT(times.draft_after_target, 0) << ranks;
    EXPECT_GT(times.layer, 0) << ranks;
    EXPECT_GT(times.beside_products, 0) << ranks;
    EXPECT_EQ(times.more_keys, 384) << ranks;
    const bool has_model =
        model_for_cache(load_model_config(smallest().draft), smallest().type_of_draft(), times.own_cache_bytes)
            .has_value();
    EXPECT_EQ(times.in_own_cache > 0, has_model) << ranks;
    EXPECT_EQ(times.filling_own_cache > 0, has_model) << ranks;
    EXPECT_GT(times.beside.loop, 0) << ranks;
    EXPECT_GT(times.beside.pass, 0) << ranks;
    EXPECT_GT(times.beside.drafted, 0) << ranks;
  }
  EXPECT_EQ(found.at(1).whole_target, found.at(1).target.front()) << "one rank has all of it";
}

TEST(PassTimes, AModelForACacheIsNarrowerAndHasTheVocabularyOfTheDraft) {
  const ModelConfig draft = load_model_config(kSource / "assets/manpy-2m");
  const auto bytes = [](const ModelConfig& model) { return work_of(model, {.weights = DType::kBF16}).weight_bytes; };
  for (const std::int64_t cache : {std::int64_t{512} << 10, std::int64_t{1} << 20, std::int64_t{2} << 20}) {
    const ModelConfig found = model_for_cache(draft, DType::kBF16, cache).value();
    EXPECT_LE(bytes(found), 0.5 * static_cast<double>(cache));
    EXPECT_GT(bytes(found), 0.1 * static_cast<double>(cache)) << "and no narrower than that";
    EXPECT_EQ(found.vocabulary, draft.vocabulary);
    const ModelConfig filling = widened_to(found, DType::kBF16, cache);
    EXPECT_LE(bytes(filling), static_cast<double>(cache));
    EXPECT_GT(bytes(filling), 0.95 * static_cast<double>(cache));
  }
  EXPECT_FALSE(model_for_cache(draft, DType::kBF16, 100'000).has_value()) << "its vocabulary alone is more";
  EXPECT_FALSE(model_for_cache(draft, DType::kBF16, 0).has_value()) << "the machine does not say what it has";
}

TEST(PassTimes, AreOfTheThreadsThatTheConfigAsksFor) {
  constexpr std::int64_t kRanks[] = {1};
  RunConfig config = smallest();
  config.parallel.threads = 1;
  EXPECT_EQ(time_passes(config, kRanks, 8).at(1).threads, 1);
}

TEST(PassTimes, FitInTheContextWhateverThePromptsAre) {
  constexpr std::int64_t kRanks[] = {1};
  RunConfig config = smallest();
  config.prompts = {{.random = 1 << 20}};
  const PassTimes found = time_passes(config, kRanks, 1).at(1);
  EXPECT_GT(found.draft.front(), 0) << "as many tokens as fit";
  EXPECT_EQ(found.more_keys, 384) << "than after fewer";
  EXPECT_GT(found.beside.loop, 0);
}

TEST(PassTimes, CountATextInTokens) {
  constexpr std::int64_t kRanks[] = {1};
  RunConfig config = smallest();
  config.target = config.draft = kSource / "assets/shapes/chinchilla-scaled";
  config.weights.random = true;
  config.prompts = {{.text = "def main():"}};
  EXPECT_THAT(tests::bad_input([&] { time_passes(config, kRanks, 1); }),
              ::testing::StartsWith("prompts[0]: found text, but " + config.target.string() + " has no tokenizer"));
}

}  // namespace
}  // namespace specdec
