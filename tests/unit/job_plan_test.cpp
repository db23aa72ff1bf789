// What a job would hold and do: by hand, and beside what real models hold.
#include "runtime/job_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/error.h"
#include "runtime/cli.h"
#include "runtime/draft_link.h"
#include "runtime/round.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kAssets = std::string(SPECDEC_SOURCE_DIR) + "/assets/";

RunConfig chinchilla_job() {
  RunConfig config;
  config.target = kAssets + "shapes/chinchilla-70b";
  config.draft = kAssets + "shapes/chinchilla-4b";
  config.prompts = {{.random = 128}};
  config.decode.k = 4;
  config.decode.max_new_tokens = 128;
  return config;
}

constexpr double kTarget = 70055362560.0;  // parameters of matrices: 80 * 13 * 8192^2 and the tied head
constexpr double kDraft = 4122476544.0;

TEST(JobPlan, OfChenEtAlsPairByHand) {
  const JobPlan plan = plan_job(chinchilla_job(), 16);
  ASSERT_EQ(plan.ranks.size(), 16U);
  EXPECT_EQ(plan.k, 4);
  EXPECT_EQ(plan.context, 128 + 64);
  const RankPlan& worker = plan.ranks[1];
  double weights = 0;
  for (const RankPlan& rank : plan.ranks) weights += rank.weights;
  EXPECT_DOUBLE_EQ(weights, 2 * (kTarget + kDraft));
  // 2048 positions of 80 layers, 4 heads of 128 a rank, keys and values in fp32.
  EXPECT_DOUBLE_EQ(worker.cache, 2048.0 * 80 * 4 * 128 * 2 * 4);
  EXPECT_DOUBLE_EQ(plan.ranks[0].cache, worker.cache + 2048.0 * 8 * 6144 * 2 * 4);
  EXPECT_DOUBLE_EQ(worker.token_reads, worker.weights + worker.cache * 193 / 2048);
  EXPECT_GT(worker.loop_operations, 4.99 * worker.token_operations);
  EXPECT_DOUBLE_EQ(worker.loop_reads, worker.weights + worker.cache * 197 / 2048);
  const double draft_pass = 2 * kDraft + 193.0 * 8 * 6144 * 2 * 4;
  const double own = plan.ranks[0].weights - 2 * kDraft + worker.cache * 197 / 2048;
  EXPECT_NEAR(plan.ranks[0].loop_reads, own + 4 * draft_pass, 1);
  EXPECT_EQ(plan.token.all_reduces, 160);
  EXPECT_EQ(plan.token.payload_bytes, 8192U * 4);
  EXPECT_EQ(plan.loop.payload_bytes, 5 * 8192U * 4);
}

TEST(JobPlan, WithoutADraftALoopIsAToken) {
  RunConfig config = chinchilla_job();
  config.decode.method = Method::kAutoregressive;
  const JobPlan plan = plan_job(config, 1);
  EXPECT_EQ(plan.k, 0);
  EXPECT_EQ(plan.token.all_reduces, 0);
  EXPECT_DOUBLE_EQ(plan.ranks[0].weights, 2 * kTarget);
  const std::string text = plan_text(plan, config, {.ranks = 1, .available = 1e12});
  EXPECT_THAT(text, AllOf(HasSubstr("It fits: 1 rank of this host needs 151 GB"), Not(HasSubstr("loop")),
                          Not(HasSubstr("all-reduces"))));
}

TEST(JobPlan, SaysWhetherItFits) {
  const RunConfig config = chinchilla_job();
  const JobPlan plan = plan_job(config, 8);
  EXPECT_THAT(plan_text(plan, config, {.ranks = 8, .available = 24e9}),
              AllOf(HasSubstr("Plan, nothing was run: chinchilla-70b (bf16) with draft chinchilla-4b (bf16, rank0), "
                              "K = 4, 8 ranks, after about 192 tokens"),
                    HasSubstr("a token: 160 all-reduces of 32.8 kB, 5.24 MB in all"),
                    HasSubstr("a loop:  160 all-reduces of 164 kB, 26.2 MB in all\n"
                              "beside them, a token: a message of "),
                    HasSubstr(" and 8 B gathered for the decision; a loop: a message of "),
                    HasSubstr(" and 40 B gathered for the decision\n"),
                    HasSubstr("It does not fit: 8 ranks of this host need"), HasSubstr("and it has 24 GB available")));
  EXPECT_THAT(plan_text(plan, config, {.ranks = 4, .available = 1e12}), HasSubstr("It fits: 4 ranks of this host"));
  EXPECT_THAT(plan_text(plan, config, {.ranks = 8, .available = std::nullopt}), HasSubstr("is not known"));
  RunConfig on_gpus = config;
  on_gpus.backend = "cuda";
  EXPECT_THAT(plan_text(plan, on_gpus, {.ranks = 8, .available = 1}),
              AllOf(HasSubstr("of GPU memory on rank 0"), Not(HasSubstr("fit"))));
  EXPECT_GT(available_memory().value_or(0), 1e6);
}

TEST(JobPlan, ALoopWhoseDraftIsCutHasItsAllReducesToo) {
  RunConfig config = chinchilla_job();
  config.placement = Placement::kSharded;
  const JobPlan plan = plan_job(config, 16);
  EXPECT_EQ(plan.drafted.all_reduces, 16);
  EXPECT_EQ(plan.loop_all_reduces(), 160 + 4 * 16);
  EXPECT_DOUBLE_EQ(plan.loop_sums_bytes(), 160 * 5 * 8192.0 * 4 + 4 * 16 * 6144.0 * 4);
  EXPECT_THAT(
      plan_text(plan, config, {.ranks = 16, .available = 1e12}),
      HasSubstr("a loop:  160 all-reduces of 164 kB, and for each of 4 drafted tokens 16 all-reduces of 24.6 kB: "
                "224 and 27.8 MB in all"));
  config.placement = Placement::kReplicated;
  EXPECT_EQ(plan_job(config, 16).loop_all_reduces(), 160);
}

TEST(JobPlan, SaysWhatIsForced) {
  RunConfig config = chinchilla_job();
  const auto text = [&] { return plan_text(plan_job(config, 2), config, {.ranks = 2, .available = 1e12}); };
  EXPECT_THAT(text(), Not(HasSubstr("orced")));
  config.weights = {.random = true, .seed = 3};
  config.acceptance = {.synthetic = true, .alpha = 0.75};
  EXPECT_THAT(text(), HasSubstr("Forced: weights: random (seed 3), acceptance: synthetic (alpha 0.75)\n"));
}

TEST(JobPlan, SaysWhatGoesBetweenRanksBesideAllReduces) {
  RunConfig config = chinchilla_job();
  const auto rank0 = static_cast<double>(RoundChannel::message_bytes(4));
  EXPECT_GT(rank0, 4 * sizeof(Token));
  EXPECT_EQ(plan_job(config, 8).loop_sent.message, rank0);
  EXPECT_EQ(plan_job(config, 8).token_sent.message, RoundChannel::message_bytes(0)) << "others are told of a token too";
  EXPECT_EQ(plan_job(config, 1).token_sent.message, 0) << "nobody to tell";
  EXPECT_EQ(plan_job(config, 1).token_sent.gathered, 0);
  config.placement = Placement::kDedicated;
  EXPECT_EQ(plan_job(config, 8).loop_sent.message, rank0 + static_cast<double>(DraftLink::reply_bytes(4)));
  config.placement = Placement::kReplicated;
  EXPECT_EQ(plan_job(config, 8).loop_sent.message, 0) << "all have drafted it";
  config.decode.sampling = {.temperature = 0};
  EXPECT_EQ(plan_job(config, 8).token_sent.gathered, 8);
  EXPECT_EQ(plan_job(config, 8).loop_sent.gathered, 5 * 8);
  config.decode.sampling = {.temperature = 0.8F, .top_p = 0.9F};
  EXPECT_EQ(plan_job(config, 8).loop_sent.gathered, 5 * 4 * 32000.0) << "all logits of a row";
}

TEST(JobPlan, SaysWhetherItFitsOnDescribedHardware) {
  RunConfig config = chinchilla_job();
  config.decode.hardware = std::string(SPECDEC_SOURCE_DIR) + "/configs/hardware/h100x8.yaml";
  const HostMemory host{.ranks = 1, .available = 1};
  EXPECT_THAT(plan_text(plan_job(config, 8), config, host),
              AllOf(HasSubstr("On h100x8 it fits: rank 0 needs"), HasSubstr("and a rank has 80 GB there")));
  EXPECT_THAT(plan_text(plan_job(config, 1), config, host), HasSubstr("On h100x8 it does not fit: rank 0 needs"));
  EXPECT_THAT(plan_text(plan_job(config, 16), config, host),
              AllOf(HasSubstr("On h100x8 it does not fit"), HasSubstr("; it has 8 ranks")));
}

TEST(JobPlan, IsAskedForOnTheCommandLine) {
  const auto plan = [](std::vector<const char*> words) {
    words.insert(words.begin(), "specdec_dist");
    return parse_command_line(static_cast<int>(words.size()), words.data()).plan;
  };
  EXPECT_EQ(plan({"--config", "minimal.yaml"}), std::nullopt);
  EXPECT_EQ(plan({"--plan"}), 0);
  EXPECT_EQ(plan({"--plan", "--config", "minimal.yaml"}), 0);
  EXPECT_EQ(plan({"--config", "minimal.yaml", "--plan", "8"}), 8);
  for (const char* odd : {"0", "17", "-1", "x"}) {
    EXPECT_THROW(plan({"--plan", odd}), Error) << odd;
  }
}

}  // namespace
}  // namespace specdec
