#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/config.h"
#include "tests/support/bad_input.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

using ::specdec::tests::bad_input;
using ::specdec::tests::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json gpt2() {
  return {{"model_type", "gpt2"}, {"n_layer", 2},      {"n_embd", 48},       {"n_head", 4},
          {"vocab_size", 131},    {"n_positions", 64}, {"n_inner", nullptr}, {"layer_norm_epsilon", 1e-6},
          {"eos_token_id", 5},    {"bos_token_id", 6}};
}

nlohmann::json llama() {
  return {{"model_type", "llama"},          {"num_hidden_layers", 3},   {"hidden_size", 96},
          {"num_attention_heads", 6},       {"num_key_value_heads", 2}, {"intermediate_size", 200},
          {"max_position_embeddings", 128}, {"vocab_size", 1000},       {"rms_norm_eps", 1e-6}};
}

ModelConfig load(const nlohmann::json& config) {
  const TemporaryDirectory directory;
  directory.write("config.json", config.dump());
  return load_model_config(directory.path());
}

/// Message of the error for `config` with `key` set to `value`.
std::string refused(nlohmann::json config, const std::string& key, const nlohmann::json& value) {
  config[key] = value;
  const std::string message = bad_input([&] { load(config); });
  EXPECT_THAT(message, AllOf(HasSubstr("config.json"), HasSubstr(key), HasSubstr("expected")));
  return message;
}

TEST(ModelConfig, Gpt2) {
  const ModelConfig config = load(gpt2());
  EXPECT_EQ(config.family, "gpt2");
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.feed_forward, 192) << "n_inner null is 4 n_embd";
  EXPECT_EQ(config.context, 64);
  EXPECT_EQ(config.norm, NormKind::kLayer);
  EXPECT_EQ(config.norm_eps, 1e-6F);
  EXPECT_EQ(config.positions, PositionKind::kLearned);
  EXPECT_EQ(config.mlp, MlpKind::kGeluTanh);
  EXPECT_TRUE(config.attention_bias && config.attention_out_bias && config.mlp_bias && config.tied_head);
  EXPECT_EQ(config.attention_scale, 1.0F / std::sqrt(12.0F));
  EXPECT_THAT(config.eos, ElementsAre(5));
  EXPECT_EQ(config.bos, 6);
}

TEST(ModelConfig, Gpt2Variants) {
  nlohmann::json changed = gpt2();
  changed["n_inner"] = 100;
  changed["scale_attn_weights"] = false;
  changed["activation_function"] = "gelu_pytorch_tanh";
  EXPECT_EQ(load(changed).feed_forward, 100);
  EXPECT_EQ(load(changed).attention_scale, 1.0F);
  refused(gpt2(), "activation_function", "gelu");
  refused(gpt2(), "activation_function", "relu");
  refused(gpt2(), "scale_attn_by_inverse_layer_idx", true);
  refused(gpt2(), "reorder_and_upcast_attn", true);
  refused(gpt2(), "add_cross_attention", true);
  refused(gpt2(), "n_head", 5);
}

TEST(ModelConfig, LlamaDefaults) {
  const ModelConfig config = load(llama());
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.head_dim, 16) << "hidden_size / num_attention_heads";
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_FALSE(config.rope.llama3.has_value());
  EXPECT_EQ(config.rope.linear_factor, 1.0);
  EXPECT_FALSE(config.attention_bias || config.attention_out_bias || config.mlp_bias || config.tied_head);
  EXPECT_TRUE(config.eos.empty());
  nlohmann::json changed = llama();
  changed.erase("num_key_value_heads");
  changed["head_dim"] = 10;
  changed["attention_bias"] = true;
  EXPECT_EQ(load(changed).kv_heads, 6);
  EXPECT_EQ(load(changed).head_dim, 10);
  EXPECT_EQ(load(changed).attention_scale, 1.0F / std::sqrt(10.0F));
  EXPECT_TRUE(load(changed).attention_bias && load(changed).attention_out_bias);
}

TEST(ModelConfig, RopeInBothForms) {
  nlohmann::json scaling = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  nlohmann::json old_form = llama();
  old_form["rope_theta"] = 500000.0;
  old_form["rope_scaling"] = scaling;
  nlohmann::json new_form = llama();
  scaling["rope_theta"] = 500000.0;
  new_form["rope_parameters"] = scaling;
  for (const nlohmann::json& form : {old_form, new_form}) {
    const RopeConfig rope = load(form).rope;
    EXPECT_EQ(rope.theta, 500000.0);
    ASSERT_TRUE(rope.llama3.has_value());
    EXPECT_EQ(rope.llama3->factor, 8.0);
    EXPECT_EQ(rope.llama3->low_freq_factor, 1.0);
    EXPECT_EQ(rope.llama3->high_freq_factor, 4.0);
    EXPECT_EQ(rope.llama3->original_context, 64);
  }
  nlohmann::json linear = llama();
  linear["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(load(linear).rope.linear_factor, 2.0);
}

TEST(ModelConfig, RefusesRopeThatItCannotCompute) {
  for (const char* type : {"dynamic", "yarn", "longrope", "Linear"}) {
    EXPECT_THAT(refused(llama(), "rope_scaling", {{"rope_type", type}, {"factor", 2.0}}),
                AllOf(HasSubstr(type), HasSubstr("default, linear or llama3")));
  }
  EXPECT_THAT(refused(llama(), "rope_scaling", {{"rope_type", "linear"}}),
              HasSubstr("rope_scaling.factor: found nothing"));
  EXPECT_THAT(refused(llama(), "rope_scaling", {{"rope_type", "linear"}, {"factor", "2"}}), HasSubstr("found \"2\""));
  refused(llama(), "rope_scaling", "linear");
  refused(llama(), "rope_theta", -1.0);
  refused(llama(), "rope_theta", "10000");
  EXPECT_THAT(refused(llama(), "rope_scaling",
                      {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 4.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}}),
              HasSubstr("more than low_freq_factor"));
  nlohmann::json both = llama();
  both["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_THAT(refused(both, "rope_scaling", {{"rope_type", "default"}}), HasSubstr("not both"));
  refused(llama(), "rope_parameters", {{"full_attention", {{"rope_type", 3}}}, {"rope_type", 3}});
}

TEST(ModelConfig, MistralOnlyWithoutAWindow) {
  nlohmann::json changed = llama();
  changed["model_type"] = "mistral";
  changed["sliding_window"] = nullptr;
  EXPECT_EQ(load(changed).family, "llama");
  changed["sliding_window"] = 128;
  EXPECT_EQ(load(changed).context, 128) << "a window as long as the context hides nothing";
  EXPECT_THAT(refused(changed, "sliding_window", 127), HasSubstr("windowed attention"));
  changed["use_sliding_window"] = false;
  EXPECT_THAT(refused(changed, "sliding_window", 127), HasSubstr("windowed attention")) << "not a key of Mistral's";
  changed.erase("sliding_window");
  EXPECT_EQ(load(changed).context, 128);
  EXPECT_THAT(refused(changed, "max_position_embeddings", 4097), HasSubstr("sliding_window"))
      << "transformers takes 4096 where the key is left out";
  refused(llama(), "sliding_window", 127);
}

TEST(ModelConfig, RefusesWrongSizes) {
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                          "intermediate_size", "max_position_embeddings", "vocab_size"}) {
    for (const nlohmann::json& value :
         {nlohmann::json("7"), nlohmann::json(0), nlohmann::json(-4), nlohmann::json(1e18),
          nlohmann::json(18446744073709551615ULL), nlohmann::json(9007199254740993LL), nlohmann::json(2.5),
          nlohmann::json::array({1})}) {
      EXPECT_THAT(refused(llama(), key, value), HasSubstr("an integer from 1 to"));
    }
    if (std::string(key) != "num_key_value_heads") {
      EXPECT_THAT(refused(llama(), key, nullptr), HasSubstr("found null"));
    }
  }
  EXPECT_THAT(refused(llama(), "num_key_value_heads", 4), HasSubstr("a divisor of num_attention_heads = 6"));
  EXPECT_THAT(refused(llama(), "head_dim", 15), HasSubstr("even"));
  nlohmann::json odd = llama();
  odd["hidden_size"] = 97;
  EXPECT_THAT(bad_input([&] { load(odd); }), HasSubstr("head_dim: found nothing"));
  refused(llama(), "rms_norm_eps", "1e-5");
  refused(llama(), "attention_bias", "yes");
  refused(llama(), "tie_word_embeddings", 1);
  refused(llama(), "hidden_act", "gelu");
  refused(llama(), "model_type", "qwen2");
  refused(llama(), "model_type", 3);
  refused(llama(), "quantization_config", {{"bits", 4}});
}

TEST(ModelConfig, UnitesEndTokens) {
  const TemporaryDirectory directory;
  nlohmann::json changed = llama();
  changed["eos_token_id"] = {7, 3};
  directory.write("config.json", changed.dump());
  directory.write("generation_config.json", R"({"eos_token_id": [3, 9]})");
  EXPECT_THAT(load_model_config(directory.path()).eos, ElementsAre(3, 7, 9));
  directory.write("generation_config.json", R"({"eos_token_id": "</s>"})");
  EXPECT_THAT(bad_input([&] { load_model_config(directory.path()); }),
              HasSubstr("generation_config.json: eos_token_id"));
  refused(llama(), "eos_token_id", -1);
  changed["eos_token_id"] = 1000;
  EXPECT_TRUE(load(changed).eos.empty()) << "an id beyond the vocabulary never comes out";
}

TEST(ModelConfig, RefusesBrokenFiles) {
  const TemporaryDirectory directory;
  const auto open = [&] { return bad_input([&] { load_model_config(directory.path()); }); };
  EXPECT_THAT(open(), HasSubstr("config.json: found no such file"));
  for (const char* broken : {"", "{", "{\"model_type\": \"gpt2\",}", "\xff\xfe", "[]", "7"}) {
    directory.write("config.json", broken);
    EXPECT_THAT(open(), HasSubstr("config.json")) << broken;
  }
  EXPECT_THAT(bad_input([&] { load_model_config(directory.path() / "absent"); }), HasSubstr("found no directory"));
}

TEST(ModelConfig, ShippedModels) {
  const ModelConfig target = load_model_config(SPECDEC_SOURCE_DIR "/assets/manpy-11m");
  EXPECT_EQ(target.layers, 12);
  EXPECT_EQ(target.d_model, 256);
  EXPECT_EQ(target.feed_forward, 768);
  EXPECT_TRUE(target.tied_head);
  EXPECT_THAT(target.eos, ElementsAre(4095));
}

}  // namespace
}  // namespace specdec
