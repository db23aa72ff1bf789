#include "runtime/rows_in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/forwarding_backend.h"
#include "parallel/head.h"
#include "parallel/self_communicator.h"
#include "runtime/decision.h"
#include "tests/support/bad_input.h"
#include "tests/support/emulated_device.h"

/// Decisions on an emulated GPU are the CPU's, and wait for it once.
namespace specdec {
namespace {

constexpr std::int64_t kRowVocabulary = 500;
constexpr std::int64_t kMostDrafted = 4;

/// An emulated GPU whose sampler has small blocks, of which a CPU is sooner done.
class SmallBlocks final : public ForwardingBackend {
 public:
  explicit SmallBlocks(const EmulatedDevice& device)
      : ForwardingBackend(std::make_unique<EmulatedBackend>(device, CudaOptions{})), device_(device) {}
  bool on_host() const override { return false; }
  std::unique_ptr<RowSampler> make_row_sampler(const SamplingParams& params) override {
    return std::make_unique<EmulatedRowSampler>(device_, params);
  }

 private:
  EmulatedDevice device_;
};

/// A head whose matrix does not matter: logits are given.
class Head {
 public:
  explicit Head(Backend& backend)
      : plan_({.heads = 16, .kv_heads = 16, .head_dim = 2, .feed_forward = 512, .vocabulary = kRowVocabulary}, 0, 1),
        matrix_(kRowVocabulary),
        head_(backend, group_, plan_,
              {{{reinterpret_cast<const std::byte*>(matrix_.data()), DType::kF32, kRowVocabulary, 1, 1, 1}},
               {{0, 1}},
               DType::kF32}) {}
  ParallelHead& operator*() { return head_; }

 private:
  SelfCommunicator group_;
  ShardPlan plan_;
  std::vector<float> matrix_;
  ParallelHead head_;
};

std::vector<float> random_logits(std::int64_t rows, std::mt19937& engine) {
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> logits(static_cast<std::size_t>(rows * kRowVocabulary));
  std::ranges::generate(logits, [&] { return normal(engine); });
  return logits;
}

struct Scene {
  Round round;
  std::vector<float> logits;
  DraftBlock draft;           // but for its rows
  std::vector<float> q_rows;  // those, on the host
};

enum class Draft : std::uint8_t { kDistributions, kPointMasses };

/// A round in which some drafted tokens stand and others do not: the draft has the target's logits, a little off.
Scene scene(const SamplingParams& params, std::int64_t drafted, Draft kind, unsigned seed) {
  std::mt19937 engine(seed);
  Scene s{.logits = random_logits(drafted + 1, engine)};
  s.round.number = seed;
  s.round.rows.push_back({.token = 5});
  const std::vector<float> noise = random_logits(drafted, engine);
  Sampler sampler(params);
  for (std::int64_t i = 0; i < drafted; ++i) {
    std::vector<float> of_draft(s.logits.begin() + i * kRowVocabulary, s.logits.begin() + (i + 1) * kRowVocabulary);
    for (std::int64_t x = 0; x < kRowVocabulary; ++x) {
      of_draft[x] += 0.3F * noise[i * kRowVocabulary + x];
    }
    std::vector<float> q(kRowVocabulary);
    sampler.warp(of_draft, q);
    const Token token = draw(q, uniform({.seed = seed, .position = static_cast<std::uint32_t>(i)}));
    const float of_token = kind == Draft::kPointMasses ? 1.0F : q[token];
    s.round.rows.push_back({.token = token, .parent = static_cast<std::int32_t>(i), .q = of_token});
    s.draft.tokens.push_back(token);
    s.draft.q.push_back(of_token);
    if (kind == Draft::kDistributions) {
      s.q_rows.insert(s.q_rows.end(), q.begin(), q.end());
    }
  }
  return s;
}

std::unique_ptr<Buffer> on(Backend& backend, const std::vector<float>& values) {
  auto memory = backend.allocate(std::max<std::size_t>(values.size(), 1) * sizeof(float));
  backend.upload(memory->data(), std::as_bytes(std::span(values)), {});
  return memory;
}

Verdict decide(Backend& backend, Decision& decision, const Scene& s) {
  const auto logits = on(backend, s.logits);
  const auto q_rows = on(backend, s.q_rows);
  DraftBlock draft = s.draft;
  if (!s.q_rows.empty()) {
    draft.q_rows = {q_rows->floats(), draft.size(), kRowVocabulary, kRowVocabulary};
  }
  return decision.decide({logits->floats(), std::ssize(s.round.rows), kRowVocabulary, kRowVocabulary}, s.round, 10,
                         draft);
}

class RowsInPlaceTest : public ::testing::Test {
 protected:
  CpuBackend cpu_{detect_isa(), 1};
  EmulatedDevice device_;
  SmallBlocks gpu_{device_};
  TokenVerifier verifier_;
  Head cpu_head_{cpu_};
  Head gpu_head_{gpu_};
};

TEST_F(RowsInPlaceTest, DecideAsTheHostDoesAndWaitOnce) {
  std::int64_t accepted = 0;
  std::int64_t rejected = 0;
  for (const SamplingParams& params : {SamplingParams{0.8F}, {1.0F, 40, 0.95F}, {1.3F, 0, 0.9F}}) {
    Decision on_cpu(*cpu_head_, true, params, verifier_, 7);
    Decision on_gpu(*gpu_head_, true, params, verifier_, 7);
    decide(gpu_, on_gpu, scene(params, kMostDrafted, Draft::kPointMasses, 99));  // takes memory
    unsigned seed = 0;
    for (const std::int64_t drafted : {0, 1, 4}) {
      if (!params.truncates() && drafted == kMostDrafted) {
        continue;  // sums of slices take an emulated GPU long
      }
      for (const Draft kind : {Draft::kDistributions, Draft::kPointMasses}) {
        const Scene s = scene(params, drafted, kind, ++seed);
        const Verdict expected = decide(cpu_, on_cpu, s);
        const int waits = *device_.waits();
        const Verdict found = decide(gpu_, on_gpu, s);
        EXPECT_EQ(*device_.waits() - waits, 1);
        EXPECT_EQ(found.next, expected.next) << drafted << " drafted, seed " << seed;
        EXPECT_EQ(found.accepted, expected.accepted);
        EXPECT_EQ(found.reached, expected.reached);
        EXPECT_EQ(found.beta_sum, expected.beta_sum);
        EXPECT_TRUE(found.decided);
        accepted += found.accepted;
        rejected += found.reached - found.accepted;
      }
    }
  }
  EXPECT_GT(accepted, 3);
  EXPECT_GT(rejected, 3);
}

TEST_F(RowsInPlaceTest, OnlyARowThatIsReachedCanBeBroken) {
  const SamplingParams params{1.0F, 40, 0.95F};
  Decision on_gpu(*gpu_head_, true, params, verifier_, 7);
  for (unsigned seed = 1; seed < 4; ++seed) {
    Scene s = scene(params, kMostDrafted, Draft::kPointMasses, seed);
    const Verdict sound = decide(gpu_, on_gpu, s);
    for (std::int64_t row = 0; row <= kMostDrafted; ++row) {
      Scene broken = s;
      broken.logits[row * kRowVocabulary + 3] = std::numeric_limits<float>::quiet_NaN();
      if (row > sound.accepted) {
        EXPECT_EQ(decide(gpu_, on_gpu, broken).next, sound.next);
        continue;
      }
      EXPECT_THAT(tests::bad_input([&] { decide(gpu_, on_gpu, broken); }),
                  ::testing::HasSubstr("logits are not finite"))
          << row;
    }
  }
}

/// A verifier whose next token is not the residual's is asked on the host, with the rows that the draft left on the device.
class Other final : public Verifier {
 public:
  explicit Other(VerifierNeeds needs) : needs_(needs) {}
  VerifierNeeds needs() const override { return needs_; }
  std::int64_t accept(const DraftedBlock& block, std::span<const double> uniforms) const override {
    return token_by_token_.accept(block, uniforms);
  }
  void next_weights(std::int64_t accepted, std::span<const float> p, std::span<const float> q,
                    std::span<float> out) const override {
    token_by_token_.next_weights(accepted, p, q, out);
  }

 private:
  VerifierNeeds needs_;
  TokenVerifier token_by_token_;
};

TEST_F(RowsInPlaceTest, OtherVerifiersSeeTheRowsOnTheHost) {
  const SamplingParams params{0.8F, 60};
  for (const auto needs : {VerifierNeeds::kAllRows, VerifierNeeds::kDraftedEntries}) {
    const Other other(needs);
    Decision on_cpu(*cpu_head_, true, params, other, 7);
    Decision on_gpu(*gpu_head_, true, params, other, 7);
    for (unsigned seed = 1; seed < 4; ++seed) {
      const Scene s = scene(params, 3, Draft::kDistributions, seed);
      const Token expected = decide(cpu_, on_cpu, s).next;
      EXPECT_EQ(decide(gpu_, on_gpu, s).next, expected);
    }
  }
}

}  // namespace
}  // namespace specdec
