// Design rules 1 to 3 through the whole model: the bits of a logit depend neither on the number of ranks (a power of two), nor on which
// rows share its pass, nor on threads.

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace specdec::golden {
namespace {

class SameBits : public ::testing::TestWithParam<Case> {
 protected:
  Result run(Way way) const {
    way.backend = GetParam().backend;
    way.dtype = GetParam().dtype;
    return run_model(directory_, tokens_, way);
  }
  const std::filesystem::path directory_ = kModels / GetParam().model;
  const ModelConfig config_ = load_model_config(directory_);
  const std::vector<Token> tokens_ = as_tokens(read_values(directory_ / "expected").at("tokens"));
};

TEST_P(SameBits, ForEveryPowerOfTwoOfRanks) {
  const Result alone = run({.ranks = 1});
  for (const int ranks : {2, 4, 8, 16}) {
    if (!splits(config_, ranks)) {
      continue;
    }
    const Result cut = run({.ranks = ranks});
    EXPECT_TRUE(cut.logits == alone.logits) << ranks << " ranks, " << largest_difference(cut.logits, alone.logits);
    EXPECT_EQ(cut.argmax, alone.argmax) << ranks << " ranks";
    EXPECT_EQ(cut.logsumexp, alone.logsumexp) << ranks << " ranks";
  }
}

TEST_P(SameBits, HoweverRowsAreBlocked) {
  const Result whole = run({});
  for (const std::int64_t block : {1, 2, 5, 16, 17}) {
    const Result blocks = run({.first_block = block, .block = block});
    EXPECT_TRUE(blocks.logits == whole.logits) << "blocks of " << block;
  }
}

TEST_P(SameBits, WithTwoThreads) { EXPECT_TRUE(run({.threads = 2}).logits == run({.threads = 1}).logits); }

INSTANTIATE_TEST_SUITE_P(Golden, SameBits, ::testing::ValuesIn(all_cases()),
                         [](const auto& value) { return name_of(value.param); });

TEST(Golden, ModelsThatSplitEightWaysAreAmongThem) {
  int eight = 0;
  for (const std::string& model : model_names()) {
    eight += splits(load_model_config(kModels / model), 8) ? 1 : 0;
  }
  EXPECT_GE(eight, 3) << "else ForEveryPowerOfTwoOfRanks would pass without trying 8 ranks";
}

}  // namespace
}  // namespace specdec::golden
