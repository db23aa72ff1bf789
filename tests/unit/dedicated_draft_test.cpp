/// A draft on a rank of its own proposes what a draft that waits would have proposed, whatever it guessed meanwhile.
#include "runtime/dedicated_draft.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "backend/error.h"
#include "backend/factory.h"
#include "models/checkpoint.h"
#include "parallel/self_communicator.h"
#include "parallel/thread_communicator.h"
#include "tests/support/random_model.h"

namespace specdec {
namespace {

using tests::TemporaryDirectory;

constexpr std::int64_t kMaxDrafted = 4;
constexpr std::uint64_t kDraftSeed = 7;

struct LocalModel {
  explicit LocalModel(const std::filesystem::path& directory)
      : checkpoint(directory),
        model(load_model_config(directory), checkpoint, *backend, self, {.dtype = DType::kF32, .max_rows = 2}) {}
  std::unique_ptr<Backend> backend = make_backend({.name = "cpu", .isa = Isa::kScalar, .threads = 1});
  SelfCommunicator self;
  Checkpoint checkpoint;
  Transformer model;
};

void read(DraftBlock& block) {
  if (block.unread == nullptr) return;
  block.unread->wait();
  block.unread->read(block);
}

class DedicatedDraft : public ::testing::Test {
 protected:
  DedicatedDraft() { tests::write_random_model({}, directory_.path()); }

  /// Runs `lead` on rank 0 against a rank that drafts.
  template <typename Lead>
  void run(const SamplingParams& sampling, Lead lead, const AcceptanceChoice& acceptance = {}) {
    run_ranks(2, [&](Communicator& pair) {
      LocalModel here(directory_.path());
      Progress progress;
      const ModelConfig& config = here.model.config();
      DraftLink link(pair, progress, *here.backend, kMaxDrafted, sampling.greedy() ? 0 : config.vocabulary);
      if (pair.rank() == 1) {
        ModelDrafter drafter(here.model, sampling, kDraftSeed);
        serve_drafts(link, drafter, acceptance, kDraftSeed, config.vocabulary);
      } else {
        DedicatedDrafter drafter(link, config.context);
        lead(drafter, here.model);
        drafter.end();
      }
    });
  }

  TemporaryDirectory directory_;
};

constexpr SamplingParams kGreedy{.temperature = 0};
constexpr SamplingParams kPlainSampling{.temperature = 1};
constexpr SamplingParams kTruncated{.temperature = 0.8F, .top_k = 30};

TEST_F(DedicatedDraft, ProposesWhatADraftThatWaitsWouldHave) {
  for (const SamplingParams& sampling : {kGreedy, kPlainSampling, kTruncated}) {
    run(sampling, [&](DedicatedDrafter& drafter, Transformer& model) {
      std::mt19937 random(3);
      const auto one_in = [&](unsigned count) { return random() % count == 0; };
      const auto any_token = [&] { return static_cast<Token>(random() % 300); };
      int ahead = 0;
      int dropped = 0;
      for (std::uint32_t sequence = 0; sequence < 4; ++sequence) {
        std::vector<Token> history(1 + random() % 5);
        for (Token& token : history) token = any_token();
        drafter.begin(sequence, history);
        bool expected = false;
        std::int64_t last_k = 0;
        for (std::uint32_t round = 0; drafter.room(std::ssize(history)) > 0; ++round) {
          if (one_in(8)) {  // rounds that draft nothing, together more tokens than an order has room for
            for (int i = 0; i < 7; ++i) history.push_back(any_token());
            expected = false;
            if (drafter.room(std::ssize(history)) == 0) break;
          }
          const std::int64_t k = std::min<std::int64_t>(1 + random() % kMaxDrafted, drafter.room(std::ssize(history)));
          DraftBlock block;
          drafter.propose(round, history, k, block);

          ModelDrafter fresh(model, sampling, kDraftSeed);
          DraftBlock reference;
          fresh.begin(sequence, history);
          fresh.propose(round, history, k, reference);
          read(reference);
          ASSERT_EQ(block.tokens, reference.tokens) << "sequence " << sequence << ", round " << round;
          ASSERT_EQ(block.q, reference.q);
          ASSERT_EQ(block.parent, reference.parent);
          ASSERT_EQ(block.q_rows.rows, reference.q_rows.rows);
          for (std::int64_t r = 0; r < block.q_rows.rows; ++r) {
            ASSERT_TRUE(
                std::equal(block.q_rows.row(r), block.q_rows.row(r) + block.q_rows.cols, reference.q_rows.row(r)));
          }
          EXPECT_EQ(block.ahead, expected && k <= last_k + 2) << "sequence " << sequence << ", round " << round;
          ahead += block.ahead ? 1 : 0;
          dropped += block.ahead ? 0 : 1;

          const auto accepted = static_cast<std::ptrdiff_t>(one_in(2) ? k : random() % k);
          history.insert(history.end(), block.tokens.begin(), block.tokens.begin() + accepted);
          expected = false;
          if (accepted == k && drafter.room(std::ssize(history) + 1) > 0 && !one_in(3)) {
            fresh.guess(round, history, std::ssize(history) - k, reference);
            read(reference);
            history.push_back(reference.tokens.front());
            expected = true;
          } else {
            history.push_back(any_token());
          }
          last_k = k;
        }
      }
      EXPECT_GT(ahead, 10);
      EXPECT_GT(dropped, 10);
    });
  }
}

TEST_F(DedicatedDraft, WithTheTargetsRandomNumberAModelGuessesItsOwnToken) {
  LocalModel here(directory_.path());
  const std::vector<Token> history{5, 17, 99, 3};
  KvCache cache = here.model.make_cache();
  const ConstRows last = here.model.prefill(history, cache, {});
  const std::vector<float> logits(last.row(0), last.row(0) + last.cols);
  // Hot, so that another number would draw another token.
  for (const SamplingParams& sampling :
       {kGreedy, SamplingParams{.temperature = 20}, SamplingParams{.temperature = 20, .top_k = 100}}) {
    ModelDrafter drafter(here.model, sampling, kDraftSeed);
    Sampler sampler(sampling);
    std::vector<float> p(logits.size());
    sampler.warp(logits, p);
    std::set<Token> drawn;
    for (std::uint32_t round = 0; round < 20; ++round) {
      DraftBlock block;
      drafter.begin(2, history);
      drafter.guess(round, history, std::ssize(history), block);
      read(block);
      const double u = uniform({.seed = kDraftSeed,
                                .sequence = 2,
                                .round = round,
                                .position = 4,
                                .level = 0,
                                .purpose = Purpose::kResample});
      ASSERT_EQ(block.tokens.front(), sampling.greedy() ? std::ranges::max_element(p) - p.begin() : draw(p, u));
      drawn.insert(block.tokens.front());
    }
    EXPECT_EQ(drawn.size() > 10, !sampling.greedy());
  }
}

TEST_F(DedicatedDraft, UnderSyntheticAcceptanceTheGuessIsTheTokenThatIsKnown) {
  run(kGreedy,
      [&](DedicatedDrafter& drafter, Transformer& model) {
        std::vector<Token> history{1, 2, 3};
        drafter.begin(5, history);
        for (std::uint32_t round = 0; round < 4; ++round) {
          DraftBlock block;
          drafter.propose(round, history, 3, block);
          EXPECT_EQ(block.ahead, round > 0);
          history.insert(history.end(), block.tokens.begin(), block.tokens.end());
          history.push_back(synthetic_next({.seed = kDraftSeed,
                                            .sequence = 5,
                                            .round = round,
                                            .position = static_cast<std::uint32_t>(history.size())},
                                           model.config().vocabulary));
        }
      },
      {.synthetic = true, .alpha = 0.9});
}

TEST_F(DedicatedDraft, RankZeroMustNotTakeWhatWasNotDrafted) {
  run_ranks(2, [&](Communicator& pair) {
    LocalModel here(directory_.path());
    Progress progress;
    DraftLink link(pair, progress, *here.backend, kMaxDrafted, 0);
    if (pair.rank() == 1) {
      ModelDrafter drafter(here.model, kGreedy, kDraftSeed);
      EXPECT_THROW(serve_drafts(link, drafter, {}, kDraftSeed, here.model.config().vocabulary), Error);
      return;
    }
    DraftOrder order{.action = DraftAction::kBegin, .count = 2};
    std::vector<Token> prompt{4, 5};
    link.exchange(order);
    link.exchange_prompt(prompt);
    order = {.action = DraftAction::kPropose, .k = 2, .ahead = true};
    link.exchange(order);
  });
}

TEST(DraftedAhead, IsWhatTheNextRoundMayAskFor) {
  EXPECT_EQ(drafted_ahead(4, 4, 100), 4);
  EXPECT_EQ(drafted_ahead(1, 8, 100), 3);
  EXPECT_EQ(drafted_ahead(4, 8, 2), 2);
  EXPECT_EQ(drafted_ahead(4, 8, 0), 0);
}

}  // namespace
}  // namespace specdec
