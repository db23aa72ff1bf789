#include "models/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <numeric>
#include <set>

#include "backend/reference/reference_backend.h"
#include "models/checkpoint.h"
#include "models/transformer.h"
#include "parallel/thread_communicator.h"
#include "tests/support/bad_input.h"
#include "tests/unit/model_files.h"

namespace specdec {
namespace {

using ::specdec::tests::bad_input;
using ::specdec::tests::f32_checkpoint;
using ::specdec::tests::TemporaryDirectory;
using ::testing::HasSubstr;

using Tensors = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

ModelConfig llama_config() {
  ModelConfig config;
  config.family = "llama";
  config.layers = 1;
  config.d_model = 1024;  // one row of an F32 matrix is one page
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.feed_forward = 128;
  config.vocabulary = 256;
  config.context = 16;
  config.attention_scale = 1.0F;
  config.tied_head = false;
  return config;
}

Tensors llama_tensors() {
  return {{"model.embed_tokens.weight", {256, 1024}},
          {"model.layers.0.input_layernorm.weight", {1024}},
          {"model.layers.0.self_attn.q_proj.weight", {32, 1024}},
          {"model.layers.0.self_attn.k_proj.weight", {16, 1024}},
          {"model.layers.0.self_attn.v_proj.weight", {16, 1024}},
          {"model.layers.0.self_attn.o_proj.weight", {1024, 32}},
          {"model.layers.0.post_attention_layernorm.weight", {1024}},
          {"model.layers.0.mlp.gate_proj.weight", {128, 1024}},
          {"model.layers.0.mlp.up_proj.weight", {128, 1024}},
          {"model.layers.0.mlp.down_proj.weight", {1024, 128}},
          {"model.norm.weight", {1024}},
          {"lm_head.weight", {256, 1024}}};
}

ModelConfig gpt2_config() {
  ModelConfig config;
  config.family = "gpt2";
  config.layers = 1;
  config.d_model = 8;
  config.heads = 4;
  config.kv_heads = 4;
  config.head_dim = 2;
  config.feed_forward = 64;
  config.vocabulary = 128;
  config.context = 4;
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.mlp = MlpKind::kGeluTanh;
  config.attention_bias = config.attention_out_bias = config.mlp_bias = true;
  return config;
}

Tensors gpt2_tensors() {
  return {{"wte.weight", {128, 8}},
          {"wpe.weight", {4, 8}},
          {"h.0.ln_1.weight", {8}},
          {"h.0.ln_1.bias", {8}},
          {"h.0.attn.c_attn.weight", {8, 24}},
          {"h.0.attn.c_attn.bias", {24}},
          {"h.0.attn.c_proj.weight", {8, 8}},
          {"h.0.attn.c_proj.bias", {8}},
          {"h.0.ln_2.weight", {8}},
          {"h.0.ln_2.bias", {8}},
          {"h.0.mlp.c_fc.weight", {8, 64}},
          {"h.0.mlp.c_fc.bias", {64}},
          {"h.0.mlp.c_proj.weight", {64, 8}},
          {"h.0.mlp.c_proj.bias", {8}},
          {"ln_f.weight", {8}},
          {"ln_f.bias", {8}}};
}

float at(const WeightView& view, std::int64_t row, std::int64_t col) {
  return load_as_float(view.data, view.dtype, row * view.row_stride + col * view.col_stride);
}

/// Element `index` of tensor `name`.
float element(const Checkpoint& checkpoint, const std::string& name, std::int64_t index) {
  const TensorView& tensor = checkpoint.tensors().at(name);
  return load_as_float(tensor.data, tensor.dtype, index);
}

TEST(Weights, ATiedTableLiesUnderEitherName) {
  for (const bool embedding : {true, false}) {
    Tensors tensors = gpt2_tensors();
    if (embedding) {
      tensors.emplace_back("lm_head.weight", std::vector<std::int64_t>{128, 8});
    } else {
      tensors.front().first = "lm_head.weight";
    }
    const TemporaryDirectory directory;
    directory.write("model.safetensors", f32_checkpoint(tensors));
    const Checkpoint checkpoint(directory.path());
    const ModelConfig config = gpt2_config();
    const ShardPlan plan(config.shard_shape(), 0, 1);
    const auto weights = map_weights(config, checkpoint, plan, DType::kF32);
    const char* embedding_name = embedding ? "wte.weight" : "lm_head.weight";
    EXPECT_EQ(at(weights->token_embedding(), 3, 4), element(checkpoint, embedding_name, 28));
    EXPECT_EQ(at(weights->head().stacked[0], 3, 4), element(checkpoint, "lm_head.weight", 28))
        << "where both are there and differ, the head's own stands, as in transformers";
  }
}

TEST(Weights, Gpt2IsUnfusedAndTransposed) {
  const TemporaryDirectory directory;
  directory.write("model.safetensors", f32_checkpoint(gpt2_tensors()));
  const Checkpoint checkpoint(directory.path());
  const ModelConfig config = gpt2_config();
  const ShardPlan plan(config.shard_shape(), 1, 2);  // heads 2 and 3, feed-forward 32..63
  const LayerWeights layer = map_weights(config, checkpoint, plan, DType::kF32)->layer(0);

  ASSERT_EQ(layer.qkv.matrix.stacked.size(), 3U);
  ASSERT_EQ(layer.qkv.bias.size(), 12U);
  for (int part = 0; part < 3; ++part) {
    const WeightView& view = layer.qkv.matrix.stacked[part];
    ASSERT_EQ(view.rows, 4);
    ASSERT_EQ(view.cols, 8);
    for (std::int64_t out = 0; out < 4; ++out) {
      const std::int64_t column = part * 8 + 4 + out;
      EXPECT_EQ(layer.qkv.bias[part * 4 + out], element(checkpoint, "h.0.attn.c_attn.bias", column));
      for (std::int64_t in = 0; in < 8; ++in) {
        EXPECT_EQ(at(view, out, in), element(checkpoint, "h.0.attn.c_attn.weight", in * 24 + column));
      }
    }
  }
  const WeightView& down = layer.mlp_out.matrix.stacked.at(0);
  ASSERT_EQ(down.rows, 8);
  ASSERT_EQ(down.cols, 32);
  EXPECT_EQ(at(down, 3, 5), element(checkpoint, "h.0.mlp.c_proj.weight", (32 + 5) * 8 + 3));
  EXPECT_EQ(layer.mlp_out.bias.size(), 8U) << "whole, since it is added after the sum";
  EXPECT_EQ(layer.mlp_in.bias.at(0), element(checkpoint, "h.0.mlp.c_fc.bias", 32));
}

TEST(Weights, LlamaStacksTheShardsOfItsProjections) {
  const TemporaryDirectory directory;
  directory.write("model.safetensors", f32_checkpoint(llama_tensors()));
  const Checkpoint checkpoint(directory.path());
  const ModelConfig config = llama_config();
  const ShardPlan plan(config.shard_shape(), 3, 4);  // query head 3, KV head 1
  const auto weights = map_weights(config, checkpoint, plan, DType::kF32);
  const LayerWeights layer = weights->layer(0);
  const std::string at_layer = "model.layers.0.";
  EXPECT_EQ(at(layer.qkv.matrix.stacked[0], 2, 7),
            element(checkpoint, at_layer + "self_attn.q_proj.weight", 26 * 1024 + 7));
  EXPECT_EQ(at(layer.qkv.matrix.stacked[1], 2, 7),
            element(checkpoint, at_layer + "self_attn.k_proj.weight", 10 * 1024 + 7));
  EXPECT_EQ(at(layer.attention_out.matrix.stacked[0], 9, 1),
            element(checkpoint, at_layer + "self_attn.o_proj.weight", 9 * 32 + 25));
  EXPECT_EQ(at(layer.mlp_in.matrix.stacked[1], 4, 6),
            element(checkpoint, at_layer + "mlp.up_proj.weight", 100 * 1024 + 6));
  EXPECT_EQ(at(weights->head().stacked[0], 1, 2), element(checkpoint, "lm_head.weight", 193 * 1024 + 2));
  EXPECT_TRUE(layer.qkv.bias.empty() && layer.attention_out.bias.empty() && layer.mlp_in.bias.empty());
}

TEST(Weights, NamesWhatDoesNotFit) {
  const ModelConfig config = llama_config();
  const ShardPlan plan(config.shard_shape(), 0, 1);
  const auto refused = [&](const Tensors& tensors, const ModelConfig& described) {
    const TemporaryDirectory directory;
    directory.write("model.safetensors", f32_checkpoint(tensors));
    const Checkpoint checkpoint(directory.path());
    return bad_input([&] { map_weights(described, checkpoint, plan, DType::kF32); });
  };
  Tensors tensors = llama_tensors();
  tensors.pop_back();
  EXPECT_THAT(refused(tensors, config), HasSubstr("lm_head.weight: found no such tensor"));

  tensors = llama_tensors();
  tensors[9].second = {128, 1024};
  EXPECT_THAT(refused(tensors, config), HasSubstr("down_proj.weight: found shape [128, 1024], expected [1024, 128]"));

  tensors = llama_tensors();
  tensors.emplace_back("model.layers.0.self_attn.q_proj.bias", std::vector<std::int64_t>{32});
  EXPECT_THAT(refused(tensors, config), HasSubstr("q_proj.bias: found a tensor that config.json does not account for"));

  ModelConfig with_bias = config;
  with_bias.attention_bias = true;
  EXPECT_THAT(refused(llama_tensors(), with_bias), HasSubstr("q_proj.bias: found no such tensor"));

  ModelConfig deeper = config;
  deeper.layers = 2;
  EXPECT_THAT(refused(llama_tensors(), deeper), HasSubstr("model.layers.1.input_layernorm.weight"));
}

/// Loading and running the shard of one rank while every page that it has no business with cannot be read: a stray access ends the test
/// program. Which pages are its own is worked out here from the plan and the format, not asked of the code under test.
TEST(Weights, ARankTouchesOnlyItsShard) {
  const TemporaryDirectory directory;
  // Whole pages for every tensor: the header is padded to a page, and all sizes are multiples of one.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  ASSERT_EQ(1024U * sizeof(float) % page, 0U);
  std::string file = f32_checkpoint(llama_tensors());
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const std::uint64_t padding = (page - (8 + header) % page) % page;
  file.insert(8 + header, padding, ' ');
  header += padding;
  std::memcpy(file.data(), &header, sizeof(header));
  directory.write("model.safetensors", file);

  const ModelConfig config = llama_config();
  const std::vector<Token> tokens = {3, 200};
  constexpr int kRanks = 4;
  run_ranks(kRanks, [&](Communicator& group) {
    const Checkpoint checkpoint(directory.path());
    const ShardPlan plan(config.shard_shape(), group.rank(), kRanks);
    std::set<std::uintptr_t> own;
    std::set<std::uintptr_t> all;
    const auto pages = [&](const std::byte* data, std::int64_t bytes) {
      std::set<std::uintptr_t> found;
      for (auto p = reinterpret_cast<std::uintptr_t>(data); p < reinterpret_cast<std::uintptr_t>(data) + bytes;
           p += page) {
        found.insert(p);
      }
      return found;
    };
    const auto own_rows = [&](const TensorView& tensor, Range rows) {
      const std::int64_t row_bytes = 4 * (tensor.shape.size() == 2 ? tensor.shape[1] : 1);
      own.merge(pages(tensor.data + rows.begin * row_bytes, rows.size() * row_bytes));
    };
    const Range queries = {plan.query_heads().begin * 8, plan.query_heads().end * 8};
    const Range keys = {plan.kv_heads().begin * 8, plan.kv_heads().end * 8};
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      const std::int64_t elements =
          std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % page, 0U);
      all.merge(pages(tensor.data, 4 * elements));
      if (name.find("q_proj") != std::string::npos) {
        own_rows(tensor, queries);
      } else if (name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos) {
        own_rows(tensor, keys);
      } else if (name.find("gate_proj") != std::string::npos || name.find("up_proj") != std::string::npos) {
        own_rows(tensor, plan.feed_forward());
      } else if (name == "lm_head.weight") {
        own_rows(tensor, plan.vocabulary());
      } else if (name.find("embed_tokens") != std::string::npos) {
        for (const Token token : tokens) {
          own_rows(tensor, {token, token + 1});
        }
      } else {  // norms, and matrices cut along columns, which every page of theirs has some of
        own_rows(tensor, {0, tensor.shape[0]});
      }
    }
    std::size_t hidden = 0;
    for (const std::uintptr_t p : all) {
      if (!own.contains(p)) {
        ASSERT_EQ(::mprotect(reinterpret_cast<void*>(p), page, PROT_NONE), 0);
        ++hidden;
      }
    }
    // Most of embedding and head, three quarters of gate and up, ...
    ASSERT_GT(hidden, all.size() / 2);

    ReferenceBackend backend;
    Transformer model(config, checkpoint, backend, group, {.dtype = DType::kF32, .max_rows = 2, .prefill_rows = 2});
    KvCache cache = model.make_cache();
    const ConstRows logits = model.prefill(tokens, cache, {});
    EXPECT_EQ(logits.cols, plan.vocabulary().size());
  });
}

}  // namespace
}  // namespace specdec
