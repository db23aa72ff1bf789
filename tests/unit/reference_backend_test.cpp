// The oracle itself, by hand.
#include "backend/reference/reference_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backend/error.h"
#include "backend/factory.h"
#include "tests/support/bad_input.h"

namespace specdec {
namespace {

using Floats = std::vector<float>;

Rows rows_of(Floats& values, std::int64_t rows) {
  const auto cols = static_cast<std::int64_t>(values.size()) / rows;
  return {values.data(), rows, cols, cols};
}

WeightView view_of(const Floats& values, std::int64_t rows, std::int64_t cols) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, rows, cols, cols, 1};
}

class ReferenceBackendTest : public testing::Test {
 protected:
  Floats multiply(const LinearSpec& spec, Floats x, std::int64_t rows) {
    const auto weight = backend.pack(spec);
    Floats y(rows * weight->out_features(), 7.0F);
    backend.matmul(*weight, rows_of(x, rows), rows_of(y, rows), stream);
    return y;
  }

  ReferenceBackend backend;
  Stream stream;
};

TEST_F(ReferenceBackendTest, MatmulStacksMatrices) {
  const Floats a = {1, 2, 3, 4};
  const Floats b = {10, 0};
  const LinearSpec spec{{view_of(a, 2, 2), view_of(b, 1, 2)}, {{0, 2}}, DType::kF32};
  EXPECT_EQ(multiply(spec, {1, 1, 2, -1}, 2), (Floats{3, 7, 10, 0, 2, 20}));
}

TEST_F(ReferenceBackendTest, MatmulReadsTransposedWeights) {
  const Floats w = {1, 3, 2, 4};  // [in, out], as GPT-2 stores it
  WeightView view = view_of(w, 2, 2);
  view.row_stride = 1;
  view.col_stride = 2;
  EXPECT_EQ(multiply({{view}, {{0, 2}}, DType::kF32}, {1, 10}, 1), (Floats{21, 43}));
}

TEST_F(ReferenceBackendTest, MatmulRoundsWeightsAndInputsToHalves) {
  const Floats w = {1 + 0x1p-11F, 1 + 0x1.8p-10F};  // ties: to the even neighbour, down and up
  const LinearSpec spec{{view_of(w, 2, 1)}, {{0, 1}}, DType::kF16};
  EXPECT_EQ(multiply(spec, {1}, 1), (Floats{1, 1 + 0x1p-9F}));
  EXPECT_EQ(multiply(spec, {65519}, 1)[0], 65504);
  EXPECT_EQ(multiply(spec, {65520}, 1)[0], std::numeric_limits<float>::infinity());
}

TEST_F(ReferenceBackendTest, MatmulAddsSlicesInATree) {
  const Floats ones(4, 1.0F);
  const Floats v = {0x1p24F, 1, 1, -0x1p24F};
  EXPECT_EQ(multiply({{view_of(v, 1, 4)}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, DType::kF32}, ones, 1)[0], 1.0F)
      << "2^24 + (1 - 2^24) is exact";
  EXPECT_EQ(multiply({{view_of(v, 1, 4)}, {{0, 4}}, DType::kF32}, ones, 1)[0], 0.0F) << "both ones are lost";
}

TEST_F(ReferenceBackendTest, EmptySlicesAreTheIdentity) {
  const Floats w = {-0.0F, 5.0F};
  const Floats y = multiply({{view_of(w, 2, 1)}, {{0, 0}, {0, 1}, {1, 1}}, DType::kF32}, {2.0F}, 1);
  EXPECT_EQ(y, (Floats{0.0F, 10.0F}));
  const Floats none;
  const Floats nothing = multiply({{view_of(none, 2, 0)}, {{0, 0}}, DType::kF32}, {}, 1);
  EXPECT_TRUE(std::signbit(nothing[0]) && std::signbit(nothing[1])) << "-0.0";
}

TEST_F(ReferenceBackendTest, Bf16RoundsWeightsAndInputs) {
  const Floats w = {1.0F + 0x1p-9F};
  EXPECT_EQ(multiply({{view_of(w, 1, 1)}, {{0, 1}}, DType::kBF16}, {3.0F}, 1)[0], 3.0F);
  const Floats one = {1.0F};
  EXPECT_EQ(multiply({{view_of(one, 1, 1)}, {{0, 1}}, DType::kBF16}, {1.0F + 0x1p-9F}, 1)[0], 1.0F);
  EXPECT_EQ(multiply({{view_of(w, 1, 1)}, {{0, 1}}, DType::kF32}, {3.0F}, 1)[0], 3.0F * (1.0F + 0x1p-9F));
}

TEST_F(ReferenceBackendTest, RmsNorm) {
  Floats x = {3, 4};
  const Floats weight = {1, 10};
  backend.rms_norm(rows_of(x, 1), weight.data(), 0.0F, rows_of(x, 1), stream);
  EXPECT_FLOAT_EQ(x[0], 3.0F / std::sqrt(12.5F));
  EXPECT_FLOAT_EQ(x[1], 40.0F / std::sqrt(12.5F));
}

TEST_F(ReferenceBackendTest, LayerNorm) {
  Floats x = {1, 3};
  const Floats weight = {2, 3};
  const Floats bias = {10, 20};
  backend.layer_norm(rows_of(x, 1), weight.data(), bias.data(), 3.0F, rows_of(x, 1), stream);
  EXPECT_EQ(x, (Floats{9.0F, 21.5F}));  // mean 2, variance 1, sqrt(1 + 3) = 2
}

TEST_F(ReferenceBackendTest, RopeTurnsPairsOfTheTwoHalves) {
  Floats x = {1, 2, 3, 4};
  const Floats cos = {1, 1, 0, 1};
  const Floats sin = {0, 0, 1, 0};
  const std::vector<std::int32_t> position = {1};
  backend.rope(rows_of(x, 1), 4, cos.data(), sin.data(), {.position = position}, stream);
  EXPECT_EQ(x, (Floats{-3, 2, 1, 4}));  // a quarter turn of (1, 3); (2, 4) stays
}

TEST_F(ReferenceBackendTest, AttentionOverEqualScoresIsTheMean) {
  const auto kv = backend.make_kv({1, 1, 1, 4});
  Floats keys = {0, 0, 0};
  Floats values = {1, 2, 6};
  backend.kv_append(*kv, 0, {.first_slot = 0}, rows_of(keys, 3), rows_of(values, 3), stream);
  Floats q = {5, 5};
  Floats out(2);
  const std::vector<std::int32_t> position = {1, 2};
  const std::vector<std::int32_t> chain = {-1, 0};
  const std::vector<std::int32_t> heads = {0};
  backend.attention(rows_of(q, 2), *kv, 0, {position, chain, 1}, heads, 1.0F, rows_of(out, 2), stream);
  EXPECT_EQ(out, (Floats{1.5F, 3.0F}));
  // A sibling is not seen.
  const std::vector<std::int32_t> siblings = {-1, -1};
  backend.attention(rows_of(q, 2), *kv, 0, {position, siblings, 1}, heads, 1.0F, rows_of(out, 2), stream);
  EXPECT_EQ(out, (Floats{1.5F, 3.5F}));
}

TEST_F(ReferenceBackendTest, AttentionWeighsByScaledScores) {
  const auto kv = backend.make_kv({1, 2, 2, 2});
  Floats keys = {0, 0, 1, 0, 2, 0, 0, 0};  // slot 0: (0,0) (1,0); slot 1: (2,0) (0,0)
  Floats values = {1, 0, 0, 5, 3, 0, 0, 9};
  backend.kv_append(*kv, 0, {.first_slot = 0}, rows_of(keys, 2), rows_of(values, 2), stream);
  Floats q = {1, 7, 1, 7};
  Floats out(4);
  const std::vector<std::int32_t> position = {1};
  const std::vector<std::int32_t> parent = {-1};
  const std::vector<std::int32_t> heads = {0, 1};
  backend.attention(rows_of(q, 1), *kv, 0, {position, parent, 1}, heads, 0.5F, rows_of(out, 1), stream);
  const float a = 1.0F / (1.0F + std::exp(1.0F));   // head 0: scores 0 and 1
  const float b = 1.0F / (1.0F + std::exp(-0.5F));  // head 1: scores 0.5 and 0
  EXPECT_FLOAT_EQ(out[0], a * 1 + (1 - a) * 3);
  EXPECT_FLOAT_EQ(out[3], b * 5 + (1 - b) * 9);
  EXPECT_EQ(out[1], 0.0F);
  // Both query heads may read one KV head.
  const std::vector<std::int32_t> shared = {1, 1};
  backend.attention(rows_of(q, 1), *kv, 0, {position, parent, 1}, shared, 0.5F, rows_of(out, 1), stream);
  EXPECT_FLOAT_EQ(out[1], b * 5 + (1 - b) * 9);
  EXPECT_EQ(out[1], out[3]);
}

TEST_F(ReferenceBackendTest, KvMoveCopiesASlotInAllLayers) {
  const auto kv = backend.make_kv({2, 1, 1, 3});
  Floats key = {0};
  Floats value = {8};
  backend.kv_append(*kv, 1, {.first_slot = 2}, rows_of(key, 1), rows_of(value, 1), stream);
  backend.kv_move(*kv, 2, 0, stream);
  Floats q = {1};
  Floats out(1);
  const std::vector<std::int32_t> zero = {0};
  const std::vector<std::int32_t> parent = {-1};
  backend.attention(rows_of(q, 1), *kv, 1, {zero, parent, 0}, zero, 1.0F, rows_of(out, 1), stream);
  EXPECT_EQ(out[0], 8.0F);
}

TEST_F(ReferenceBackendTest, Activations) {
  Floats gate_up = {0, 1, 6, 5};
  Floats out(2);
  backend.silu_mul(rows_of(gate_up, 1), rows_of(out, 1), stream);
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_FLOAT_EQ(out[1], 5.0F / (1.0F + std::exp(-1.0F)));
  Floats x = {0, 1, -1, 10};
  backend.gelu_tanh(rows_of(x, 1), stream);
  EXPECT_EQ(x[0], 0.0F);
  EXPECT_FLOAT_EQ(x[1], 0.84119199F);  // torch.nn.functional.gelu(1, approximate="tanh")
  EXPECT_FLOAT_EQ(x[2], -0.15880801F);
  EXPECT_EQ(x[3], 10.0F);
}

TEST_F(ReferenceBackendTest, Additions) {
  Floats x = {1, 2, 3, 4};
  Floats y = {10, 20, 30, 40};
  const Floats bias = {100, 200};
  backend.add(rows_of(x, 2), rows_of(y, 2), stream);
  EXPECT_EQ(x, (Floats{11, 22, 33, 44}));
  backend.add_bias(rows_of(x, 2), bias.data(), stream);
  EXPECT_EQ(x, (Floats{111, 222, 133, 244}));
}

TEST_F(ReferenceBackendTest, SliceStatistics) {
  Floats logits = {1, 3, 3, -2, 0, 0, 0, 5};
  const std::vector<Range> slices = {{0, 3}, {3, 3}, {3, 4}};
  std::vector<SliceMax> max(6);
  backend.slice_max(rows_of(logits, 2), slices, max, stream);
  EXPECT_EQ(max[0].index, 1) << "the lowest of a tie";
  EXPECT_EQ(max[0].value, 3.0F);
  EXPECT_EQ(max[1].index, -1);
  EXPECT_EQ(max[1].value, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(max[5].index, 3);
  std::vector<SliceSum> sum(6);
  backend.slice_sum(rows_of(logits, 2), 2.0F, slices, sum, stream);
  EXPECT_EQ(sum[0].max, 1.5F);
  EXPECT_FLOAT_EQ(sum[0].sum, 2.0F + std::exp(-1.0F));
  EXPECT_EQ(sum[1].sum, 0.0F);
  EXPECT_EQ(sum[3].sum, 3.0F);
  EXPECT_EQ(sum[5].sum, 1.0F);
}

TEST_F(ReferenceBackendTest, MemoryIsZeroAndAligned) {
  const auto buffer = backend.allocate(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
  EXPECT_EQ(buffer->bytes(), 100U);
  for (std::size_t i = 0; i < buffer->bytes(); ++i) {
    EXPECT_EQ(buffer->data()[i], std::byte{0});
  }
  const std::vector<std::byte> sent = {std::byte{1}, std::byte{2}};
  std::vector<std::byte> back(2);
  backend.upload(buffer->data() + 3, sent, stream);
  backend.download(back, buffer->data() + 3, stream);
  EXPECT_EQ(back, sent);
  EXPECT_EQ(backend.allocate(0)->bytes(), 0U);
}

TEST(Factory, MakesBackendsAndNamesThemInErrors) {
  EXPECT_EQ(make_backend({.name = "reference"})->description(), "reference");
  EXPECT_EQ(make_backend({.name = "cpu", .isa = Isa::kScalar, .threads = 2})->description(), "cpu (scalar, 2 threads)");
  EXPECT_EQ(make_backend({.isa = Isa::kScalar})->description(), "cpu (scalar, 1 thread)");
  EXPECT_EQ(tests::bad_input([] { make_backend({.name = "gpu"}); }),
            "backend: found \"gpu\", expected \"cpu\", \"reference\" or \"cuda\"");
  EXPECT_THROW(make_backend({.threads = 0}), Error);
}

}  // namespace
}  // namespace specdec
