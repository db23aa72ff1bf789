#include "models/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/error.h"
#include "models/json_object.h"
#include "models/limits.h"

namespace specdec {
namespace {

// As in limits.h.
constexpr std::int64_t kMostHeads = 1 << 14;
constexpr std::int64_t kLongestContext = 1 << 20;
constexpr std::int64_t kLargestHead = 1 << 12;

void require_false(const JsonObject& json, std::string_view key, std::string_view why) {
  if (json.has(key) && json.boolean(key, false)) {
    json.refuse(key, fmt::format("false ({})", why));
  }
}

void read_gpt2(const JsonObject& json, ModelConfig& config) {
  config.family = "gpt2";
  config.layers = json.integer("n_layer", 1, kMostLayers);
  config.d_model = json.integer("n_embd", 1, kLargestWidth);
  config.heads = json.integer("n_head", 1, kMostHeads);
  config.kv_heads = config.heads;
  if (config.d_model % config.heads != 0) {
    json.refuse("n_head", fmt::format("a divisor of n_embd = {}", config.d_model));
  }
  config.head_dim = config.d_model / config.heads;
  config.feed_forward = json.integer("n_inner", 1, 4 * kLargestWidth, 4 * config.d_model);
  config.context = json.integer(json.has("n_positions") ? "n_positions" : "n_ctx", 1, kLongestContext);
  config.norm = NormKind::kLayer;
  config.norm_eps = static_cast<float>(json.number("layer_norm_epsilon", 0.0, 1.0, 1e-5));
  config.positions = PositionKind::kLearned;
  config.mlp = MlpKind::kGeluTanh;
  const std::string activation = json.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    json.refuse("activation_function", "gelu_new or gelu_pytorch_tanh");
  }
  require_false(json, "scale_attn_by_inverse_layer_idx", "attention scaled by layer is not supported");
  require_false(json, "reorder_and_upcast_attn", "Mistral-GPT2's attention is not supported");
  require_false(json, "add_cross_attention", "a decoder without an encoder");
  config.attention_scale =
      json.boolean("scale_attn_weights", true) ? 1.0F / std::sqrt(static_cast<float>(config.head_dim)) : 1.0F;
  config.attention_bias = true;
  config.attention_out_bias = true;
  config.mlp_bias = true;
  config.tied_head = json.boolean("tie_word_embeddings", true);
}

/// The rope dictionary of a config: `rope_parameters` of transformers 5, `rope_scaling` before it, or nothing.
std::string rope_key(const JsonObject& json) {
  if (json.has("rope_parameters") && json.has("rope_scaling")) {
    json.refuse("rope_scaling", "either rope_parameters or rope_scaling, not both");
  }
  return json.has("rope_parameters") ? "rope_parameters" : json.has("rope_scaling") ? "rope_scaling" : "";
}

RopeConfig read_rope(const JsonObject& json) {
  constexpr double kLargestTheta = 1e15;
  constexpr double kLargestFactor = 1e6;
  RopeConfig rope;
  rope.theta = json.number("rope_theta", 1.0, kLargestTheta, rope.theta);
  const std::string key = rope_key(json);
  if (key.empty()) {
    return rope;
  }
  const JsonObject scaling = json.object(key);
  rope.theta = scaling.number("rope_theta", 1.0, kLargestTheta, rope.theta);
  if (scaling.number("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    scaling.refuse("partial_rotary_factor", "1 (all of a head rotated)");
  }
  const std::string_view type_key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.text(type_key, "default");
  if (type == "linear") {
    rope.linear_factor = scaling.number("factor", 1.0, kLargestFactor);
  } else if (type == "llama3") {
    RopeConfig::Llama3 llama3;
    llama3.factor = scaling.number("factor", 1.0, kLargestFactor);
    llama3.low_freq_factor = scaling.number("low_freq_factor", 1e-6, kLargestFactor);
    llama3.high_freq_factor = scaling.number("high_freq_factor", 1e-6, kLargestFactor);
    if (llama3.high_freq_factor <= llama3.low_freq_factor) {
      scaling.refuse("high_freq_factor", fmt::format("more than low_freq_factor = {}", llama3.low_freq_factor));
    }
    const JsonObject& holder = scaling.has("original_max_position_embeddings") ? scaling : json;
    llama3.original_context = holder.integer("original_max_position_embeddings", 1, kLongestContext);
    rope.llama3 = llama3;
  } else if (type != "default") {
    scaling.refuse(type_key, "default, linear or llama3");
  }
  return rope;
}

void refuse_sliding_window(const JsonObject& json, bool mistral, std::int64_t context) {
  // A key of other families: Mistral has the window whatever it says.
  if (!mistral && !json.boolean("use_sliding_window", true)) {
    return;
  }
  // A Mistral config that leaves the key out means 4096 to transformers; null means none.
  constexpr std::int64_t kMistralDefault = 4096;
  const std::vector<std::string> keys = json.keys();
  const bool named = std::find(keys.begin(), keys.end(), "sliding_window") != keys.end();
  const std::int64_t fallback = mistral && !named ? kMistralDefault : kLongestContext;
  if (json.integer("sliding_window", 1, INT32_MAX, fallback) < context) {
    json.refuse(
        "sliding_window",
        fmt::format("null, or at least max_position_embeddings = {} (windowed attention is not supported)", context));
  }
}

void read_llama(const JsonObject& json, ModelConfig& config, bool mistral) {
  config.family = "llama";
  config.layers = json.integer("num_hidden_layers", 1, kMostLayers);
  config.d_model = json.integer("hidden_size", 1, kLargestWidth);
  config.heads = json.integer("num_attention_heads", 1, kMostHeads);
  config.kv_heads = json.integer("num_key_value_heads", 1, kMostHeads, config.heads);
  if (config.heads % config.kv_heads != 0) {
    json.refuse("num_key_value_heads", fmt::format("a divisor of num_attention_heads = {}", config.heads));
  }
  if (!json.has("head_dim") && config.d_model % config.heads != 0) {
    json.refuse("head_dim", fmt::format("a value, since num_attention_heads = {} does not divide hidden_size = {}",
                                        config.heads, config.d_model));
  }
  config.head_dim = json.integer("head_dim", 1, kLargestHead, config.d_model / config.heads);
  if (config.head_dim % 2 != 0) {
    throw_bad_input(fmt::format("{}: head_dim: found {}, expected an even number (rotary positions turn pairs)",
                                json.file(), config.head_dim));
  }
  config.feed_forward = json.integer("intermediate_size", 1, 4 * kLargestWidth);
  config.context = json.integer("max_position_embeddings", 1, kLongestContext);
  config.norm = NormKind::kRms;
  config.norm_eps = static_cast<float>(json.number("rms_norm_eps", 0.0, 1.0, 1e-6));
  config.positions = PositionKind::kRotary;
  config.rope = read_rope(json);
  config.mlp = MlpKind::kSwiGlu;
  if (json.text("hidden_act", "silu") != "silu") {
    json.refuse("hidden_act", "silu");
  }
  refuse_sliding_window(json, mistral, config.context);
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim));
  config.attention_bias = !mistral && json.boolean("attention_bias", false);
  config.attention_out_bias = config.attention_bias;
  config.mlp_bias = !mistral && json.boolean("mlp_bias", false);
  config.tied_head = json.boolean("tie_word_embeddings", false);
}

/// Adds the ids of `key`. An id beyond the vocabulary never comes out of the model, so it ends nothing; published tiny
/// models keep the id of the model that they were cut from.
void unite_eos(const JsonObject& json, ModelConfig& config) {
  for (const std::int64_t id : json.integers("eos_token_id", 0, INT32_MAX)) {
    const auto token = static_cast<Token>(id);
    if (id < config.vocabulary && std::find(config.eos.begin(), config.eos.end(), token) == config.eos.end()) {
      config.eos.push_back(token);
    }
  }
}

}  // namespace

ModelConfig load_model_config(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    throw_bad_input(fmt::format("{}: found no directory, expected a Hugging Face model directory", directory.string()));
  }
  const JsonObject json = JsonObject::load(directory / "config.json");
  ModelConfig config;
  const std::string type = json.text("model_type");
  if (type == "gpt2") {
    read_gpt2(json, config);
  } else if (type == "llama" || type == "mistral") {
    read_llama(json, config, type == "mistral");
  } else {
    json.refuse("model_type", "gpt2, llama or mistral");
  }
  if (json.has("quantization_config")) {
    json.refuse("quantization_config", "none (weights in F32, F16 or BF16)");
  }
  config.vocabulary = json.integer("vocab_size", 1, kLargestVocabulary);
  if (json.has("bos_token_id")) {
    const std::int64_t bos = json.integer("bos_token_id", 0, INT32_MAX);
    if (bos < config.vocabulary) {
      config.bos = static_cast<Token>(bos);
    }
  }
  unite_eos(json, config);
  const std::filesystem::path generation = directory / "generation_config.json";
  if (std::filesystem::exists(generation, error)) {
    unite_eos(JsonObject::load(generation), config);
  }
  std::sort(config.eos.begin(), config.eos.end());
  return config;
}

}  // namespace specdec
