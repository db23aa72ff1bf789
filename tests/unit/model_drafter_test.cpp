#include "runtime/model_drafter.h"

#include <gtest/gtest.h>

#include "backend/error.h"
#include "backend/factory.h"
#include "backend/sampler.h"
#include "models/checkpoint.h"
#include "parallel/self_communicator.h"
#include "tests/support/random_model.h"

namespace specdec {
namespace {

using tests::TemporaryDirectory;

/// Proposes, and reads at once.
void propose(Drafter& drafter, std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) {
  drafter.propose(round, history, k, block);
  if (block.unread != nullptr) {
    block.unread->wait();
    block.unread->read(block);
  }
}

/// A small random model and what it needs.
class ModelDrafterTest : public ::testing::Test {
 protected:
  ModelDrafterTest()
      : checkpoint_(written(directory_)),
        model_(load_model_config(directory_.path()), checkpoint_, *backend_, self_,
               {.dtype = DType::kF32, .max_rows = 2}) {}

  static std::filesystem::path written(const TemporaryDirectory& directory) {
    tests::write_random_model({}, directory.path());
    return directory.path();
  }

  /// What a drafter that knows nothing yet proposes.
  std::vector<Token> fresh(const std::vector<Token>& history, std::int64_t k) {
    ModelDrafter drafter(model_, kGreedy, 0);
    DraftBlock block;
    drafter.begin(0, history);
    propose(drafter, 0, history, k, block);
    return block.tokens;
  }

  static constexpr SamplingParams kGreedy{.temperature = 0};
  TemporaryDirectory directory_;
  std::unique_ptr<Backend> backend_ = make_backend({.name = "cpu", .isa = Isa::kScalar, .threads = 1});
  SelfCommunicator self_;
  Checkpoint checkpoint_;
  Transformer model_;
};

TEST_F(ModelDrafterTest, FindsOutByItselfWhatStillStands) {
  const std::vector<Token> prompt{5, 17, 99, 3};
  for (std::size_t accepted = 0; accepted <= 4; ++accepted) {
    for (const bool repeated : {false, true}) {
      ModelDrafter drafter(model_, kGreedy, 0);
      DraftBlock block;
      drafter.begin(0, prompt);
      propose(drafter, 0, prompt, 4, block);
      std::vector<Token> history = prompt;
      history.insert(history.end(), block.tokens.begin(), block.tokens.begin() + static_cast<std::ptrdiff_t>(accepted));
      // The next token is another one, or the very one that was drafted there: then all of the history has been fed already.
      const Token drafted = block.tokens[std::min<std::size_t>(accepted, 3)];
      history.push_back(repeated ? drafted : (drafted + 1) % 300);
      propose(drafter, 1, history, 3, block);
      EXPECT_EQ(block.tokens, fresh(history, 3)) << accepted << (repeated ? ", repeated" : "");
    }
  }
}

TEST_F(ModelDrafterTest, DraftsWhatTheModelSaysOfItsOwnTokens) {
  const std::vector<Token> prompt{5, 17, 99, 3};
  for (const SamplingParams& sampling : {kGreedy, SamplingParams{.temperature = 0.9F, .top_k = 50}}) {
    ModelDrafter drafter(model_, sampling, 7);
    DraftBlock block;
    drafter.begin(2, prompt);
    propose(drafter, 3, prompt, 5, block);
    ASSERT_EQ(block.size(), 5);

    KvCache cache = model_.make_cache();
    Sampler sampler(sampling);
    ConstRows logits = model_.prefill(prompt, cache, {});
    std::vector<float> q(static_cast<std::size_t>(logits.cols));
    for (std::int64_t i = 0; i < block.size(); ++i) {
      sampler.warp({logits.row(0), q.size()}, q);
      const auto position = static_cast<std::uint32_t>(prompt.size()) + static_cast<std::uint32_t>(i);
      const Token token = draw(q, uniform({.seed = 7, .sequence = 2, .round = 3, .position = position, .level = 1}));
      EXPECT_EQ(block.tokens[i], token) << i;
      EXPECT_EQ(block.q[i], q[token]) << i;
      logits = model_.prefill({&token, 1}, cache, {});
    }
  }
}

TEST_F(ModelDrafterTest, CatchesUpWithRoundsThatItWasNotAskedIn) {
  const std::vector<Token> prompt{5, 17};
  ModelDrafter drafter(model_, kGreedy, 0);
  DraftBlock block;
  drafter.begin(0, prompt);
  propose(drafter, 0, prompt, 2, block);
  std::vector<Token> history = prompt;
  for (Token token = 40; token < 60; ++token) {
    history.push_back(token);
  }
  propose(drafter, 5, history, 2, block);
  EXPECT_EQ(block.tokens, fresh(history, 2));
}

TEST_F(ModelDrafterTest, HasRoomToTheEndOfItsContext) {
  const std::int64_t context = model_.config().context;
  ModelDrafter drafter(model_, kGreedy, 0);
  const std::vector<Token> history(static_cast<std::size_t>(context - 2), 7);
  EXPECT_EQ(drafter.room(context - 2), 3);
  EXPECT_EQ(drafter.room(context + 1), 0);
  EXPECT_EQ(fresh(history, 3).size(), 3U);
  EXPECT_THROW(fresh(history, 4), Error);
}

}  // namespace
}  // namespace specdec
