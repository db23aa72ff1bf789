#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/packed_linear.h"
#include "backend/random_elements.h"
#include "backend/reference/reference_backend.h"
#include "models/random_tensors.h"
#include "models/transformer.h"
#include "models/weights.h"
#include "parallel/thread_communicator.h"
#include "tests/support/bad_input.h"
#include "tests/support/random_layers.h"
#include "tests/support/temporary_directory.h"

/// `weights: random`: one model, whoever makes which part of it where.
namespace specdec {
namespace {

using ::testing::HasSubstr;

TEST(RandomElements, KnownNumbers) {
  // Of a Philox written in Python, for the FNV-1a of these names.
  const auto number = [](std::uint64_t seed, const std::string& name, std::int64_t i) {
    RandomElements elements = *RandomTensors(seed).tensor(name, {4, 4}).random;
    elements.scale = 1;
    return elements[i];
  };
  const auto rounded = [](float value) { return bf16_to_float(float_to_bf16(value)); };
  EXPECT_EQ(number(0, "lm_head.weight", 0), rounded(-16463));
  EXPECT_EQ(number(0, "lm_head.weight", 1), rounded(4885));
  EXPECT_EQ(number(0, "lm_head.weight", 13), rounded(-56325));
  EXPECT_EQ(number(UINT64_MAX, "model.embed_tokens.weight", 68719476742), rounded(15813));
}

TEST(RandomElements, ManyAtOnceAreThoseOneByOne) {
  std::vector<std::size_t> counts(40);
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  counts.insert(counts.end(), {127, 128, 129, 143, 256, 417});  // with and without what goes side by side
  // The last one is where the numbers of blocks go from 32 bits to more.
  for (const std::int64_t first :
       {std::int64_t{0}, std::int64_t{3}, std::int64_t{8}, std::int64_t{21}, (std::int64_t{8} << 32) - 100}) {
    const RandomElements elements{.seed = 5, .tensor = 7, .first = first, .mean = 0.25F, .scale = 0.1F};
    for (std::int64_t begin = 0; begin < 11; ++begin) {
      for (const std::size_t count : counts) {
        std::vector<float> out(count);
        fill_random(elements, begin, out);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], elements[begin + static_cast<std::int64_t>(i)]) << first << " " << begin << " " << i;
        }
      }
    }
  }
}

TEST(RandomElements, HaveTheDeviationThatWasAskedFor) {
  constexpr std::int64_t kCount = 1 << 20;
  const double deviation = 0.02;
  const RandomElements elements{.seed = 1, .tensor = 2, .scale = RandomElements::scale_of(deviation)};
  std::vector<float> values(kCount);
  fill_random(elements, 0, values);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
    ASSERT_LE(std::abs(value), 1.7321 * deviation * (1 + 0x1p-8));
  }
  // Five standard errors: of a mean of n numbers, s / sqrt(n); of the mean of squares of uniform ones, s^2 sqrt(4 / 5 / n).
  EXPECT_LT(std::abs(sum / kCount), 5 * deviation / std::sqrt(kCount));
  EXPECT_LT(std::abs(squares / kCount - deviation * deviation), 5 * deviation * deviation * std::sqrt(0.8 / kCount));
}

TEST(RandomTensors, ATensorIsItsSeedsAndItsNames) {
  const RandomTensors tensors(3);
  const auto begin_of = [](const RandomTensors& source, const std::string& name) {
    const TensorView tensor = source.tensor(name, {8, 8});
    std::vector<float> values(16);
    fill_random(*tensor.random, 0, values);
    return values;
  };
  EXPECT_EQ(begin_of(tensors, "a.weight"), begin_of(RandomTensors(3), "a.weight"));
  EXPECT_NE(begin_of(tensors, "a.weight"), begin_of(tensors, "b.weight"));
  EXPECT_NE(begin_of(tensors, "a.weight"), begin_of(RandomTensors(4), "a.weight"));
  EXPECT_NE(begin_of(tensors, "a.weight"), begin_of(RandomTensors(3 + (std::uint64_t{1} << 32)), "a.weight"));
  EXPECT_EQ(tensors.name(), "weights: random (seed 3)");
}

TEST(RandomTensors, MatricesKeepSizesNormsAreOneBiasesZero) {
  const RandomTensors tensors(0);
  const auto scale = [&](const char* name, std::int64_t rows, std::int64_t cols) {
    return tensors.tensor(name, {rows, cols}).random->scale;
  };
  EXPECT_EQ(scale("model.layers.0.mlp.down_proj.weight", 64, 256), RandomElements::scale_of(1.0 / 16));
  EXPECT_EQ(scale("h.0.mlp.c_proj.weight", 256, 64), RandomElements::scale_of(1.0 / 16)) << "inputs come first";
  EXPECT_EQ(scale("wte.weight", 1000, 64), RandomElements::scale_of(1.0 / 8));
  EXPECT_EQ((*tensors.tensor("model.norm.weight", {9}).random)[8], 1.0F);
  EXPECT_EQ((*tensors.tensor("h.3.ln_1.bias", {9}).random)[8], 0.0F);
}

class RandomLayers : public ::testing::TestWithParam<DType> {};

TEST_P(RandomLayers, ArePackedAsIfTheyHadBeenRead) {
  for (const tests::RandomLayer& layer : tests::random_layers(GetParam())) {
    const LinearSpec made = layer.spec();
    ASSERT_TRUE(made.random());
    const tests::ReadLayer read(made);
    ASSERT_FALSE(read.spec().random());
    const CpuPackedLinear a(made, Isa::kScalar);
    const CpuPackedLinear b(read.spec(), Isa::kScalar);
    ASSERT_EQ(a.bytes(), b.bytes()) << layer.name;
    EXPECT_TRUE(tests::same_bytes(a.panels(), b.panels(), a.bytes())) << layer.name;
    const CpuPackedLinear none(made, Isa::kScalar, Contents::kNone);
    EXPECT_EQ(none.bytes(), 0U);
    EXPECT_EQ(static_cast<std::size_t>(none.panel_count() * none.panel_bytes()), a.bytes()) << layer.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RandomLayers, ::testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& of) { return std::string(name_of(of.param)); });

ModelConfig small_config(const std::string& family) {
  ModelConfig config;
  config.family = family;
  config.layers = 3;
  config.d_model = 96;
  config.heads = 16;
  config.kv_heads = 16;
  config.head_dim = 6;
  config.feed_forward = 1000;
  config.vocabulary = 1100;
  config.context = 64;
  config.attention_scale = 0.4F;
  if (family == "gpt2") {
    config.norm = NormKind::kLayer;
    config.positions = PositionKind::kLearned;
    config.mlp = MlpKind::kGeluTanh;
    config.attention_bias = config.attention_out_bias = config.mlp_bias = true;
  } else {
    config.kv_heads = 4;
    config.tied_head = false;
  }
  return config;
}

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

std::unique_ptr<Backend> cpu_backend() { return std::make_unique<CpuBackend>(detect_isa(), 1); }
std::unique_ptr<Backend> reference_backend() { return std::make_unique<ReferenceBackend>(); }

struct Greedy {
  std::vector<Token> tokens;
  std::vector<float> logits;  ///< of every token's pass, [tokens, vocabulary]
};

Greedy decode(const std::string& family, DType dtype, int ranks, const MakeBackend& make_backend) {
  const ModelConfig config = small_config(family);
  Greedy out;
  run_ranks(ranks, [&](Communicator& group) {
    const RandomTensors tensors(11);
    const auto backend = make_backend();
    Transformer model(config, tensors, *backend, group, {.dtype = dtype});
    KvCache cache = model.make_cache();
    std::vector<Token> tokens = {7, 1000, 3};
    std::vector<float> rows;
    std::vector<float> row(group.rank() == 0 ? config.vocabulary : 0);
    for (int i = 0; i < 24; ++i) {
      const std::span<const Token> pass = std::span<const Token>(tokens).subspan(i == 0 ? 0 : tokens.size() - 1);
      const ConstRows logits = model.prefill(pass, cache, {});
      model.head().gather_rows(logits, row, {});
      rows.insert(rows.end(), row.begin(), row.end());
      std::int32_t next = 0;
      model.head().argmax(logits, {&next, 1}, {});
      tokens.push_back(next);
    }
    if (group.rank() == 0) {
      out = {tokens, rows};
    }
  });
  return out;
}

class RandomModels : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomModels, HaveTheSameBitsOnAnyPowerOfTwoOfRanks) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Greedy one = decode(GetParam(), dtype, 1, cpu_backend);
    for (const int ranks : {2, 4, 8}) {
      const Greedy several = decode(GetParam(), dtype, ranks, cpu_backend);
      EXPECT_EQ(several.tokens, one.tokens) << ranks << " ranks";
      EXPECT_EQ(several.logits, one.logits) << ranks << " ranks";
    }
  }
}

TEST_P(RandomModels, WriteTheSameTextOnTheReference) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    EXPECT_EQ(decode(GetParam(), dtype, 2, cpu_backend).tokens, decode(GetParam(), dtype, 2, reference_backend).tokens);
  }
}

TEST_P(RandomModels, HaveLogitsThatLookLikeAModels) {
  const Greedy run = decode(GetParam(), DType::kF32, 1, cpu_backend);
  double squares = 0;
  for (const float logit : run.logits) {
    ASSERT_TRUE(std::isfinite(logit));
    squares += static_cast<double>(logit) * logit;
  }
  // A final norm of rows to length sqrt(d), and a head of deviation 1 / sqrt(d): 1, up to the chance of 96 directions that 24 rows share.
  EXPECT_NEAR(squares / static_cast<double>(run.logits.size()), 1.0, 0.3);
  const std::set<Token> written(run.tokens.begin() + 3, run.tokens.end());
  EXPECT_GT(written.size(), 2U) << "it repeats itself";
}

INSTANTIATE_TEST_SUITE_P(Families, RandomModels, ::testing::Values("llama", "gpt2"),
                         [](const auto& of) { return std::string(of.param); });

TEST(RandomModels, NeedNoMoreThanAConfig) {
  const tests::TemporaryDirectory directory;
  EXPECT_THAT(tests::bad_input([&] { open_weights(directory.path(), {}); }), HasSubstr("or weights: random"));
  EXPECT_EQ(open_weights(directory.path(), {.random = true, .seed = 2})->name(), "weights: random (seed 2)");
  EXPECT_EQ(label_of(WeightsChoice{}), "");
}

}  // namespace
}  // namespace specdec
