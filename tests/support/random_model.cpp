#include "tests/support/random_model.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <vector>

namespace specdec::tests {
namespace {

using Json = nlohmann::json;

/// Collects tensors and writes them as one safetensors file.
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(const RandomModel& model)
      : engine_(model.seed), other_(model.seed + 7919), noise_(model.noise) {}

  void add(const std::string& name, std::vector<std::int64_t> shape, float mean, float deviation) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) {
      count *= n;
    }
    std::normal_distribution<float> normal;
    const std::size_t begin = data_.size() * sizeof(float);
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = normal(engine_);
      const float other = normal(other_);
      data_.push_back(mean + deviation * (value + noise_ * other));
    }
    header_[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data_.size() * sizeof(float)}}};
  }

  void write(const std::filesystem::path& file) const {
    std::string header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const auto size = static_cast<std::uint64_t>(header.size());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof size);
    out << header;
    out.write(reinterpret_cast<const char*>(data_.data()), static_cast<std::streamsize>(data_.size() * sizeof(float)));
    if (!out) {
      throw std::runtime_error("cannot write " + file.string());
    }
  }

 private:
  std::mt19937 engine_;
  std::mt19937 other_;
  float noise_;
  Json header_ = Json::object();
  std::vector<float> data_;
};

float spread(std::int64_t inputs) { return 1.0F / std::sqrt(static_cast<float>(inputs)); }

Json write_llama(const RandomModel& m, SafetensorsWriter& w) {
  const std::int64_t q = m.heads * m.head_dim;
  const std::int64_t kv = m.kv_heads * m.head_dim;
  w.add("model.embed_tokens.weight", {m.vocabulary, m.d_model}, 0, 1);
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".";
    w.add(p + "input_layernorm.weight", {m.d_model}, 1, 0.1F);
    w.add(p + "self_attn.q_proj.weight", {q, m.d_model}, 0, 2 * spread(m.d_model));
    w.add(p + "self_attn.k_proj.weight", {kv, m.d_model}, 0, spread(m.d_model));
    w.add(p + "self_attn.v_proj.weight", {kv, m.d_model}, 0, spread(m.d_model));
    w.add(p + "self_attn.o_proj.weight", {m.d_model, q}, 0, spread(q));
    w.add(p + "post_attention_layernorm.weight", {m.d_model}, 1, 0.1F);
    w.add(p + "mlp.gate_proj.weight", {m.feed_forward, m.d_model}, 0, spread(m.d_model));
    w.add(p + "mlp.up_proj.weight", {m.feed_forward, m.d_model}, 0, spread(m.d_model));
    w.add(p + "mlp.down_proj.weight", {m.d_model, m.feed_forward}, 0, spread(m.feed_forward));
  }
  w.add("model.norm.weight", {m.d_model}, 1, 0.1F);
  if (!m.tied) {
    w.add("lm_head.weight", {m.vocabulary, m.d_model}, 0, spread(m.d_model));
  }
  return {{"model_type", "llama"},
          {"hidden_size", m.d_model},
          {"num_hidden_layers", m.layers},
          {"num_attention_heads", m.heads},
          {"num_key_value_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"intermediate_size", m.feed_forward},
          {"vocab_size", m.vocabulary},
          {"max_position_embeddings", m.context},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", m.tied}};
}

Json write_gpt2(const RandomModel& m, SafetensorsWriter& w) {
  w.add("wte.weight", {m.vocabulary, m.d_model}, 0, 0.3F);
  w.add("wpe.weight", {m.context, m.d_model}, 0, 0.3F);
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const std::string p = "h." + std::to_string(l) + ".";
    for (const std::string norm : {"ln_1", "ln_2"}) {
      w.add(p + norm + ".weight", {m.d_model}, 1, 0.1F);
      w.add(p + norm + ".bias", {m.d_model}, 0, 0.1F);
    }
    w.add(p + "attn.c_attn.weight", {m.d_model, 3 * m.d_model}, 0, 2 * spread(m.d_model));
    w.add(p + "attn.c_attn.bias", {3 * m.d_model}, 0, 0.1F);
    w.add(p + "attn.c_proj.weight", {m.d_model, m.d_model}, 0, spread(m.d_model));
    w.add(p + "attn.c_proj.bias", {m.d_model}, 0, 0.1F);
    w.add(p + "mlp.c_fc.weight", {m.d_model, m.feed_forward}, 0, spread(m.d_model));
    w.add(p + "mlp.c_fc.bias", {m.feed_forward}, 0, 0.1F);
    w.add(p + "mlp.c_proj.weight", {m.feed_forward, m.d_model}, 0, spread(m.feed_forward));
    w.add(p + "mlp.c_proj.bias", {m.d_model}, 0, 0.1F);
  }
  w.add("ln_f.weight", {m.d_model}, 1, 0.1F);
  w.add("ln_f.bias", {m.d_model}, 0, 0.1F);
  return {{"model_type", "gpt2"},      {"n_embd", m.d_model},
          {"n_layer", m.layers},       {"n_head", m.heads},
          {"n_inner", m.feed_forward}, {"vocab_size", m.vocabulary},
          {"n_positions", m.context},  {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5}};
}

}  // namespace

void write_random_model(const RandomModel& model, const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  SafetensorsWriter writer(model);
  const Json config = model.family == "gpt2" ? write_gpt2(model, writer) : write_llama(model, writer);
  writer.write(directory / "model.safetensors");
  std::ofstream(directory / "config.json") << config.dump(2);
}

}  // namespace specdec::tests
