#include "runtime/configuration_hash.h"

#include <algorithm>
#include <bit>
#include <string>

#include "runtime/config_load.h"
#include "runtime/fingerprint.h"
#include "runtime/version.h"

namespace specdec {
namespace {

/// Of the middle of each tensor.
constexpr std::size_t kSampleBytes = 64;

void add_text(RunningHash& hash, std::string_view text) { hash.add(std::as_bytes(std::span(text))); }

void add_number(RunningHash& hash, std::integral auto value) { hash.add(static_cast<std::uint64_t>(value)); }

void add_number(RunningHash& hash, double value) { hash.add(std::bit_cast<std::uint64_t>(value)); }

template <typename T>
void add_enum(RunningHash& hash, T value) {
  hash.add(static_cast<std::uint64_t>(value));
}

void add_model(RunningHash& hash, const ModelConfig& model) {
  add_text(hash, model.family);
  for (const std::int64_t size : {model.layers, model.d_model, model.heads, model.kv_heads, model.head_dim,
                                  model.feed_forward, model.vocabulary, model.context}) {
    add_number(hash, size);
  }
  add_enum(hash, model.norm);
  add_number(hash, static_cast<double>(model.norm_eps));
  add_enum(hash, model.positions);
  add_number(hash, model.rope.theta);
  add_number(hash, model.rope.linear_factor);
  add_number(hash, model.rope.llama3.has_value());
  const RopeConfig::Llama3 llama3 = model.rope.llama3.value_or(RopeConfig::Llama3{});
  add_number(hash, llama3.factor);
  add_number(hash, llama3.low_freq_factor);
  add_number(hash, llama3.high_freq_factor);
  add_number(hash, llama3.original_context);
  add_enum(hash, model.mlp);
  add_number(hash, static_cast<double>(model.attention_scale));
  for (const bool flag : {model.attention_bias, model.attention_out_bias, model.mlp_bias, model.tied_head}) {
    add_number(hash, flag);
  }
}

void add_tensors(RunningHash& hash, const TensorSource& source) {
  for (const auto& [name, tensor] : source.tensors()) {
    add_text(hash, name);
    add_enum(hash, tensor.dtype);
    add_number(hash, tensor.shape.size());
    std::size_t bytes = size_of(tensor.dtype);
    for (const std::int64_t size : tensor.shape) {
      add_number(hash, size);
      bytes *= static_cast<std::size_t>(size);
    }
    const std::size_t taken = std::min(bytes, kSampleBytes);
    hash.add(std::span(tensor.data + (bytes - taken) / 2, taken));
  }
}

}  // namespace

std::uint64_t configuration_hash(const RunConfig& config, const ModelConfig& target, const TensorSource& source,
                                 std::string_view isa, int ranks) {
  RunningHash hash;
  add_text(hash, serialise(config));
  add_text(hash, build_commit());
  add_text(hash, isa);
  add_number(hash, ranks);
  add_model(hash, target);
  add_tensors(hash, source);
  return hash.value();
}

}  // namespace specdec
