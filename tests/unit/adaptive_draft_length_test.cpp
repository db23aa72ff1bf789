/// K that follows what rounds showed.
#include "runtime/adaptive_draft_length.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/error.h"
#include "models/checkpoint.h"
#include "runtime/cost_model.h"
#include "runtime/hardware_load.h"
#include "runtime/philox.h"
#include "runtime/rows_cost.h"
#include "runtime/theory.h"
#include "tests/support/source_directory.h"

namespace specdec {
namespace {

using tests::kSource;

RoundOutcome outcome(std::int64_t drafted, std::int64_t accepted) {
  return {.drafted = drafted, .reached = std::min(drafted, accepted + 1), .accepted = accepted};
}

/// Times of loops in which a drafted token takes `c` of the target's pass.
std::vector<double> times(double c, std::int64_t max) {
  std::vector<double> out;
  for (std::int64_t k = 0; k <= max; ++k) out.push_back(1 + c * static_cast<double>(k));
  return out;
}

TEST(HeuristicDraftLength, GrowsByTwoWhenAllStandsAndShrinksByOneAtARejection) {
  HeuristicDraftLength length(9);
  EXPECT_EQ(length.max(), 9);
  EXPECT_EQ(length.next(), 4);
  length.observe(outcome(4, 4));
  EXPECT_EQ(length.next(), 6);
  length.observe(outcome(6, 6));
  EXPECT_EQ(length.next(), 8);
  length.observe(outcome(8, 8));
  EXPECT_EQ(length.next(), 9);
  for (std::int64_t k = 8; k >= 1; --k) {
    length.observe(outcome(9, 0));
    EXPECT_EQ(length.next(), k);
  }
  length.observe(outcome(1, 0));
  EXPECT_EQ(length.next(), 1);
}

TEST(HeuristicDraftLength, KeepsToWhatItMay) {
  HeuristicDraftLength none(0);
  none.observe(outcome(0, 0));
  EXPECT_EQ(none.next(), 0);
  HeuristicDraftLength one(1);
  EXPECT_EQ(one.next(), 1);
  one.observe(outcome(1, 1));
  EXPECT_EQ(one.next(), 1);
  one.observe(outcome(1, 0));
  EXPECT_EQ(one.next(), 1);
  HeuristicDraftLength cut(8);
  cut.observe(outcome(0, 0));  // nothing could be drafted
  EXPECT_EQ(cut.next(), 4);
}

TEST(OptimalDraftLength, FindsTheKOfTheRateThatIsThere) {
  for (const double alpha : {0.2, 0.5, 0.8, 0.9}) {
    for (const double c : {0.05, 0.2}) {
      OptimalDraftLength length(times(c, 32));
      RandomKey key{.seed = 5, .purpose = Purpose::kAccept};
      double tokens = 0;
      double time = 0;
      for (int round = 0; round < 5000; ++round) {
        const std::int64_t k = length.next();
        std::int64_t accepted = 0;
        while (accepted < k && uniform(key) < alpha) {
          ++accepted;
          ++key.position;
        }
        ++key.position;
        length.observe(outcome(k, accepted));
        if (round >= 100) {
          tokens += static_cast<double>(accepted + 1);
          time += 1 + c * static_cast<double>(k);
        }
      }
      // The estimate moves, and the curve is flat about its best.
      const double best = speedup_factor(alpha, best_k(alpha, c, 32), c);
      EXPECT_GT(tokens / time, 0.95 * best) << "alpha " << alpha << ", c " << c;
      EXPECT_LT(tokens / time, 1.03 * best) << "alpha " << alpha << ", c " << c;
    }
  }
}

TEST(OptimalDraftLength, ForgetsSoThatItDraftsAgain) {
  OptimalDraftLength length(times(0.3, 8));
  while (length.next() > 0) length.observe(outcome(length.next(), 0));
  const double low = length.alpha();
  int waited = 0;
  for (; length.next() == 0 && waited < 1000; ++waited) length.observe(outcome(0, 0));
  EXPECT_GT(waited, 0);
  EXPECT_LT(waited, 200);
  EXPECT_GT(length.alpha(), low);
  EXPECT_GT(length.next(), 0);
}

/// Over one of the target alone.
std::vector<double> relative_times(const RunConfig& config, const ModelConfig& target, const ModelConfig& draft,
                                   int ranks, Isa isa, const InterconnectChoice& interconnect = {}) {
  std::vector<double> times = expected_loop_times(config, target, draft, ranks, isa, interconnect);
  const double alone = times.front();
  for (double& time : times) time /= alone;
  return times;
}

TEST(OptimalDraftLength, WithoutHardwareADraftedTokenTakesTheShareOfItsWeightsAndRowsWhatTheyTypicallyDo) {
  RunConfig config;
  config.decode.k = 3;
  const ModelConfig target = load_model_config(kSource / "assets/manpy-11m");
  const ModelConfig draft = load_model_config(kSource / "assets/manpy-2m");
  config.backend = "cuda";
  const std::vector<double> one = relative_times(config, target, draft, 1, Isa::kAvx2);
  const std::vector<double> two = relative_times(config, target, draft, 2, Isa::kAvx2);
  ASSERT_EQ(one.size(), 4U);
  const double share = work_of(draft, {}).weight_bytes / work_of(target, {}).weight_bytes;
  const double keys = 0.02 * share;  // of the rows themselves, which a pass reads too
  EXPECT_NEAR(one[3], 1 + 3 * share, keys);
  EXPECT_NEAR(two[1] - 1, 2 * share, 0.1 * share);
  config.draft_dtype = DType::kF32;
  EXPECT_NEAR(relative_times(config, target, draft, 1, Isa::kAvx2)[1], 1 + 2 * share, keys);
  config.backend = "cpu";
  for (const Isa isa : {Isa::kAvx2, Isa::kAmxBf16}) {
    EXPECT_NEAR(relative_times(config, target, draft, 1, isa)[3], typical_rows_cost("cpu", isa, 4) + 6 * share,
                0.1 * share)
        << "rows are not free there, those of a draft that all were taken from neither";
  }
}

TEST(OptimalDraftLength, CountsTheMessagesOfAModelledInterconnect) {
  RunConfig config;
  config.decode.k = 8;
  const ModelConfig target = load_model_config(kSource / "assets/manpy-11m");
  const ModelConfig draft = load_model_config(kSource / "assets/manpy-2m");
  const auto choose = [&](const InterconnectChoice& interconnect) {
    return OptimalDraftLength(expected_loop_times(config, target, draft, 2, Isa::kAvx2, interconnect)).next();
  };
  Interconnect slow{.name = "slow", .link = {.latency = 1e-3, .bandwidth = 1e11}};
  const std::vector<double> native = relative_times(config, target, draft, 2, Isa::kAvx2);
  const std::vector<double> modelled = relative_times(config, target, draft, 2, Isa::kAvx2, slow);
  EXPECT_GT(native[4], 1.5);
  EXPECT_LT(modelled[4], 1.2) << "the target alone pays for as many all-reduces";
  EXPECT_GT(choose(slow), choose({}));
  // A draft that is cut over the ranks pays for them with each token.
  config.placement = Placement::kSharded;
  EXPECT_GT(relative_times(config, target, draft, 2, Isa::kAvx2, slow)[4], 1.5 * modelled[4]);
}

TEST(RowsCost, IsWhatWasMeasuredAndALineInBetween) {
  EXPECT_EQ(typical_rows_cost("cpu", Isa::kAvx2, 1), 1);
  EXPECT_DOUBLE_EQ(typical_rows_cost("cpu", Isa::kAvx2, 5), 1.26);
  EXPECT_DOUBLE_EQ(typical_rows_cost("cpu", Isa::kAvx2, 7), (1.26 + 2.25) / 2);
  EXPECT_DOUBLE_EQ(typical_rows_cost("cpu", Isa::kAvx2, 16), 3.78);
  EXPECT_NEAR(typical_rows_cost("cpu", Isa::kAvx2, 17) - 3.78, (3.78 - 2.25) / 7, 1e-12);
  EXPECT_DOUBLE_EQ(typical_rows_cost("cpu", Isa::kAvx512Bf16, 5), has_fast_vdpbf16ps() ? 1.11 : 1.15);
  EXPECT_EQ(typical_rows_cost("cpu", Isa::kAvx512, 5), typical_rows_cost("cpu", Isa::kAvx2, 5));
  EXPECT_DOUBLE_EQ(typical_rows_cost("cpu", Isa::kAmxBf16, 16), 1.33);
  EXPECT_EQ(typical_rows_cost("cuda", Isa::kAvx2, 16), 1);
}

TEST(OptimalDraftLength, WithHardwareALoopTakesWhatTheCostModelSays) {
  RunConfig config;
  config.decode.k = 2;
  config.decode.hardware = (kSource / "configs/hardware/h100x8.yaml").string();
  const ModelConfig target = load_model_config(kSource / "assets/shapes/chinchilla-70b");
  const ModelConfig draft = load_model_config(kSource / "assets/shapes/chinchilla-4b");
  const std::vector<double> found = expected_loop_times(config, target, draft, 8, Isa::kAvx2, {});
  const Hardware hardware = load_hardware(config.decode.hardware, "test");
  for (std::int64_t k = 0; k <= 2; ++k) {
    EXPECT_EQ(found.at(static_cast<std::size_t>(k)),
              loop_time(hardware, {.target = target, .draft = draft, .ranks = 8}, k, 0.7).total());
  }
  Hardware slow = hardware;
  slow.interconnect.overhead += 1e-3;
  EXPECT_EQ(expected_loop_times(config, target, draft, 8, Isa::kAvx2, slow.interconnect).at(1),
            loop_time(slow, {.target = target, .draft = draft, .ranks = 8}, 1, 0.7).total());
  EXPECT_THROW(expected_loop_times(config, target, draft, 9, Isa::kAvx2, {}), Error);
}

TEST(DraftLengths, AreMadeAsTheConfigSays) {
  const std::vector<double> loop_times = times(0.1, 6);
  RunConfig::Decode decode{.k = 6};
  EXPECT_EQ(make_draft_length(decode, {})->next(), 6);
  decode.draft_length = DraftLengthRule::kHeuristic;
  EXPECT_EQ(make_draft_length(decode, {})->next(), 4);
  decode.draft_length = DraftLengthRule::kOptimal;
  const auto optimal = make_draft_length(decode, loop_times);
  EXPECT_EQ(optimal->max(), 6);
  EXPECT_EQ(optimal->next(), best_k(0.7, 0.1, 6));
  EXPECT_EQ(make_draft_length(decode, {})->next(), 6);  // without a draft
}

}  // namespace
}  // namespace specdec
