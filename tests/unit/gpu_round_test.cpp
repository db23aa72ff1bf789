#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/error.h"
#include "parallel/self_communicator.h"
#include "tests/support/decode_harness.h"
#include "tests/support/emulated_device.h"
#include "tests/support/random_model.h"

/// Rounds of one rank on an emulated GPU: the CPU's tokens, and the host waits once a round.
namespace specdec {
namespace {

using tests::DecodeCase;
using tests::DecodeResult;
using tests::DraftKind;

class GpuRound : public ::testing::Test {
 protected:
  void SetUp() override {
    if (detect_isa() == Isa::kScalar) {
      GTEST_SKIP() << "this CPU does not fuse multiply-adds";
    }
    tests::write_random_model({.layers = 1}, target_.path());
    tests::write_random_model({.layers = 1, .noise = 0.3F}, draft_.path());
  }

  DecodeCase of(const SamplingParams& sampling, std::int64_t k) const {
    return {.target = target_.path(),
            .draft = draft_.path(),
            .kind = k > 0 ? DraftKind::kModel : DraftKind::kNone,
            .k = k,
            .sampling = sampling,
            .seed = 3,
            .dtype = DType::kF32,
            .rules = {.max_new_tokens = 9, .eos = {}, .stop = {}}};
  }

  static DecodeResult run(const DecodeCase& settings) {
    SelfCommunicator self;
    return tests::DecodeRank(self, settings).run(settings, {5, 17, 99, 3}, 0, false);
  }

  tests::TemporaryDirectory target_;
  tests::TemporaryDirectory draft_;
};

TEST_F(GpuRound, HasTheCpusTokensAndOneWait) {
  for (const SamplingParams& sampling : {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 0.9F},
                                         SamplingParams{.temperature = 1.1F, .top_k = 20, .top_p = 0.9F}}) {
    for (const std::int64_t k : {0, 3}) {
      SCOPED_TRACE("temperature " + std::to_string(sampling.temperature) + ", K = " + std::to_string(k));
      DecodeCase settings = of(sampling, k);
      const DecodeResult expected = run(settings);

      const EmulatedDevice device;
      settings.make_backend = [&] { return std::make_unique<EmulatedBackend>(device, CudaOptions{}); };
      SelfCommunicator self;
      tests::DecodeRank rank(self, settings);
      const int before = *device.waits();
      const DecodeResult found = rank.run(settings, {5, 17, 99, 3}, 0, false);
      EXPECT_EQ(*device.waits() - before, std::ssize(found.loops));
      EXPECT_EQ(found.tokens, expected.tokens);
      ASSERT_EQ(found.loops.size(), expected.loops.size());
      for (std::size_t i = 0; i < found.loops.size(); ++i) {
        const LoopRecord& loop = found.loops[i];
        EXPECT_EQ(loop.accepted, expected.loops[i].accepted);
        EXPECT_EQ(loop.beta_sum, expected.loops[i].beta_sum);
        // Each part of a loop is a part of it, whoever waited for it.
        EXPECT_GT(loop.draft, 0);
        EXPECT_GT(loop.score_compute, 0);
        EXPECT_GT(loop.decide, 0);
        EXPECT_GT(loop.rest(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace specdec
