#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/dtype.h"
#include "parallel/shard_plan.h"

namespace specdec {

using Token = std::int32_t;

enum class NormKind : std::uint8_t { kRms, kLayer };
enum class PositionKind : std::uint8_t { kRotary, kLearned };
enum class MlpKind : std::uint8_t { kSwiGlu, kGeluTanh };

/// RoPE (Su et al. 2021), with the `llama3` frequency scaling of Llama 3.1 when `llama3` is set.
struct RopeConfig {
  double theta = 10000.0;
  struct Llama3 {
    double factor = 8.0;
    double low_freq_factor = 1.0;
    double high_freq_factor = 4.0;
    std::int64_t original_context = 8192;
  };
  std::optional<Llama3> llama3;
  double linear_factor = 1.0;  ///< rope_type "linear": positions are divided by it
};

/// A model as data. A family is a mapping from its config.json (and tensor names, see weights.h) to this.
struct ModelConfig {
  std::string family;  ///< "gpt2" or "llama" (Mistral-like directories included)
  std::int64_t layers = 0;
  std::int64_t d_model = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t feed_forward = 0;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  ///< positions
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5F;
  PositionKind positions = PositionKind::kRotary;
  RopeConfig rope;
  MlpKind mlp = MlpKind::kSwiGlu;
  float attention_scale = 0;    ///< 1 / sqrt(head_dim) unless the config says otherwise
  bool attention_bias = false;  ///< q, k, v have biases
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool tied_head = true;
  std::vector<Token> eos;  ///< config.json and generation_config.json together
  std::optional<Token> bos;

  ShardShape shard_shape() const { return {heads, kv_heads, head_dim, feed_forward, vocabulary}; }
};

/// Reads DIR/config.json (and generation_config.json where there is one). Throws kBadInput with file, key, found and
/// expected.
ModelConfig load_model_config(const std::filesystem::path& directory);

}  // namespace specdec
