// Design rules 1 to 3 through the whole model: the bits of a logit depend neither on the number of ranks (a power of two), nor on which
// rows share its pass, nor on threads.

#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace specdec::golden {
namespace {

struct Case {
  std::string model;
  std::string backend;
  DType dtype = DType::kF32;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << ", " << c.backend << ", " << name_of(c.dtype); }

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

TEST_P(SameBits, OtherRankCountsStayWithinTheBound) {
  const Result alone = run({.ranks = 1});
  // Rounding inputs of products to bf16 turns a last-bit difference into one of 2^-9 in an input, now and then.
  const double unit = GetParam().dtype == DType::kBF16 ? 0x1p-9 / 0x1p-24 : 1.0;
  for (const int ranks : {3, 5, 6, 7}) {
    if (splits(config_, ranks)) {
      EXPECT_LE(largest_difference(run({.ranks = ranks}).logits, alone.logits),
                unit * rounding_bound(config_, alone.logits))
          << ranks << " ranks";
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : model_names()) {
    for (const std::string backend : {"reference", "cpu"}) {
      all.push_back({model, backend, DType::kF32});
      all.push_back({model, backend, DType::kBF16});
    }
  }
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + info.param.backend + "_" + std::string(name_of(info.param.dtype));
  for (char& c : name) {
    c = c == '-' ? '_' : c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, SameBits, ::testing::ValuesIn(cases()), case_name);

TEST(Golden, ModelsThatSplitEightWaysAreAmongThem) {
  int eight = 0;
  for (const std::string& model : model_names()) {
    eight += splits(load_model_config(kModels / model), 8) ? 1 : 0;
  }
  EXPECT_GE(eight, 3) << "else ForEveryPowerOfTwoOfRanks would pass without trying 8 ranks";
}

}  // namespace
}  // namespace specdec::golden
