#include "models/weights.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "backend/error.h"

namespace specdec {
namespace {

constexpr const char* kHeadTable = "lm_head.weight";

/// A tensor [rows, cols] that lies as the backend wants it: outputs by inputs.
WeightView as_stored(const TensorView& tensor) {
  const std::int64_t cols = tensor.shape[1];
  return {tensor.data, tensor.dtype, tensor.shape[0], cols, cols, 1, tensor.random, tensor.source};
}

/// A Conv1D tensor [inputs, outputs] as outputs by inputs.
WeightView transposed(const TensorView& tensor) {
  return {tensor.data, tensor.dtype,    tensor.shape[1], tensor.shape[0],
          1,           tensor.shape[1], tensor.random,   tensor.source};
}

WeightView block_of(const WeightView& view, Range rows, Range cols) {
  WeightView block = view;
  const std::int64_t elements = rows.begin * view.row_stride + cols.begin * view.col_stride;
  if (block.random) {
    block.random->first += elements;
  } else {
    block.data += elements * static_cast<std::int64_t>(size_of(view.dtype));
  }
  block.rows = rows.size();
  block.cols = cols.size();
  return block;
}

WeightView rows_of(const WeightView& view, Range rows) { return block_of(view, rows, {0, view.cols}); }
WeightView cols_of(const WeightView& view, Range cols) { return block_of(view, {0, view.rows}, cols); }

void append_floats(const TensorView& tensor, Range range, std::vector<float>& out) {
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    out.push_back(tensor.random ? (*tensor.random)[i] : load_as_float(tensor.data, tensor.dtype, i));
  }
}

Range shifted(Range range, std::int64_t by) { return {range.begin + by, range.end + by}; }
Range scaled(Range range, std::int64_t by) { return {range.begin * by, range.end * by}; }

/// What both families share: looking tensors up with their shapes, and the shard's ranges.
class FamilyWeights : public Weights {
 public:
  LinearSpec head() const override {
    return {{rows_of(head_table(), plan_.vocabulary())}, {{0, config_.d_model}}, dtype_};
  }

 protected:
  FamilyWeights(const ModelConfig& config, const TensorSource& source, const ShardPlan& plan, DType dtype,
                std::string_view optional_prefix, std::string_view known_tensor)
      : config_(config), source_(source), plan_(plan), dtype_(dtype) {
    const std::string prefixed = fmt::format("{}{}", optional_prefix, known_tensor);
    prefix_ = source.contains(prefixed) ? optional_prefix : "";
  }

  TensorView tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
    return unprefixed(fmt::format("{}{}", prefix_, name), shape);
  }
  TensorView unprefixed(const std::string& name, const std::vector<std::int64_t>& shape) const {
    used_.insert(name);
    return source_.tensor(name, shape);
  }

  /// Tied tables are saved once, under either name.
  WeightView embedding_table(std::string_view name) const {
    const bool under_the_heads_name = config_.tied_head && !source_.contains(fmt::format("{}{}", prefix_, name));
    return under_the_heads_name && source_.contains(kHeadTable)
               ? head_table()
               : as_stored(tensor(name, {config_.vocabulary, config_.d_model}));
  }
  /// The head's own table wherever there is one: beside a tied embedding it holds the same numbers again, and where it
  /// does not, the config is what is wrong (transformers decides so too).
  WeightView head_table() const {
    return config_.tied_head && !source_.contains(kHeadTable)
               ? token_embedding()
               : as_stored(unprefixed(kHeadTable, {config_.vocabulary, config_.d_model}));
  }

  std::vector<float> vector(std::string_view name, std::int64_t size) const {
    std::vector<float> values;
    append_floats(tensor(name, {size}), {0, size}, values);
    return values;
  }

  /// The inner dimension whole: what a column-parallel layer sums over.
  LinearSpec columns_cut(std::vector<WeightView> stacked) const {
    return {std::move(stacked), {{0, config_.d_model}}, dtype_};
  }
  LinearSpec rows_cut(const WeightView& view, std::vector<Range> slices) const {
    return {{view}, std::move(slices), dtype_};
  }

  Range query_columns() const { return scaled(plan_.query_heads(), config_.head_dim); }
  Range kv_columns() const { return scaled(plan_.kv_heads(), config_.head_dim); }

  /// Looks at every tensor once, so that a bad checkpoint fails before any of it is packed, and refuses what belongs to
  /// the model but has no place in this program. Buffers that old versions of transformers saved are no weights.
  void check_all_tensors() const {
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      layer(i);
    }
    final_norm();
    head();
    token_embedding();
    position_embedding();
    for (const auto& [name, view] : source_.tensors()) {
      const bool buffer =
          name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
      if (!buffer && !used_.contains(name)) {
        throw_bad_input(
            fmt::format("{}: {}: found a tensor that config.json does not account for, expected those of "
                        "{} layers of a {} model only",
                        source_.name(), name, config_.layers, config_.family));
      }
    }
  }

  const ModelConfig& config_;
  const TensorSource& source_;
  const ShardPlan plan_;
  const DType dtype_;
  std::string prefix_;

 private:
  mutable std::set<std::string, std::less<>> used_;
};

class Gpt2Weights final : public FamilyWeights {
 public:
  Gpt2Weights(const ModelConfig& config, const TensorSource& source, const ShardPlan& plan, DType dtype)
      : FamilyWeights(config, source, plan, dtype, "transformer.", "ln_f.weight") {
    check_all_tensors();
  }

  LayerWeights layer(std::int64_t index) const override {
    const std::int64_t d = config_.d_model;
    const std::int64_t attention = config_.heads * config_.head_dim;
    const std::int64_t wide = config_.feed_forward;
    const std::string at = fmt::format("h.{}.", index);
    const TensorView fused = tensor(at + "attn.c_attn.weight", {d, 3 * attention});
    const TensorView fused_bias = tensor(at + "attn.c_attn.bias", {3 * attention});

    LayerWeights layer;
    layer.attention_norm = norm(at + "ln_1");
    std::vector<WeightView> qkv;
    for (int part = 0; part < 3; ++part) {
      const Range outputs = shifted(query_columns(), part * attention);
      qkv.push_back(rows_of(transposed(fused), outputs));
      append_floats(fused_bias, outputs, layer.qkv.bias);
    }
    layer.qkv.matrix = columns_cut(std::move(qkv));
    layer.attention_out = {
        rows_cut(cols_of(transposed(tensor(at + "attn.c_proj.weight", {attention, d})), query_columns()),
                 plan_.attention_slices()),
        vector(at + "attn.c_proj.bias", d)};
    layer.mlp_norm = norm(at + "ln_2");
    layer.mlp_in.matrix =
        columns_cut({rows_of(transposed(tensor(at + "mlp.c_fc.weight", {d, wide})), plan_.feed_forward())});
    append_floats(tensor(at + "mlp.c_fc.bias", {wide}), plan_.feed_forward(), layer.mlp_in.bias);
    layer.mlp_out = {rows_cut(cols_of(transposed(tensor(at + "mlp.c_proj.weight", {wide, d})), plan_.feed_forward()),
                              plan_.feed_forward_slices()),
                     vector(at + "mlp.c_proj.bias", d)};
    return layer;
  }

  NormWeights final_norm() const override { return norm("ln_f"); }
  WeightView token_embedding() const override { return embedding_table("wte.weight"); }
  WeightView position_embedding() const override {
    return as_stored(tensor("wpe.weight", {config_.context, config_.d_model}));
  }

 private:
  NormWeights norm(const std::string& name) const {
    return {vector(name + ".weight", config_.d_model), vector(name + ".bias", config_.d_model)};
  }
};

class LlamaWeights final : public FamilyWeights {
 public:
  LlamaWeights(const ModelConfig& config, const TensorSource& source, const ShardPlan& plan, DType dtype)
      : FamilyWeights(config, source, plan, dtype, "model.", "norm.weight") {
    check_all_tensors();
  }

  LayerWeights layer(std::int64_t index) const override {
    const std::string at = fmt::format("layers.{}.", index);
    LayerWeights layer;
    layer.attention_norm = norm(at + "input_layernorm");
    layer.qkv = outputs_cut({{{at + "self_attn.q_proj", config_.heads * config_.head_dim, query_columns()},
                              {at + "self_attn.k_proj", config_.kv_heads * config_.head_dim, kv_columns()},
                              {at + "self_attn.v_proj", config_.kv_heads * config_.head_dim, kv_columns()}}},
                            config_.attention_bias);
    layer.attention_out = inputs_cut(at + "self_attn.o_proj", config_.heads * config_.head_dim, query_columns(),
                                     plan_.attention_slices(), config_.attention_out_bias);
    layer.mlp_norm = norm(at + "post_attention_layernorm");
    layer.mlp_in = outputs_cut({{{at + "mlp.gate_proj", config_.feed_forward, plan_.feed_forward()},
                                 {at + "mlp.up_proj", config_.feed_forward, plan_.feed_forward()}}},
                               config_.mlp_bias);
    layer.mlp_in.matrix.gated = true;
    layer.mlp_out = inputs_cut(at + "mlp.down_proj", config_.feed_forward, plan_.feed_forward(),
                               plan_.feed_forward_slices(), config_.mlp_bias);
    return layer;
  }

  NormWeights final_norm() const override { return norm("norm"); }
  WeightView token_embedding() const override { return embedding_table("embed_tokens.weight"); }
  WeightView position_embedding() const override { return {}; }

 private:
  struct Projection {
    std::string name;
    std::int64_t outputs = 0;
    Range mine;
  };

  NormWeights norm(const std::string& name) const { return {vector(name + ".weight", config_.d_model), {}}; }

  LinearWeights outputs_cut(const std::vector<Projection>& stacked, bool has_bias) const {
    LinearWeights linear;
    std::vector<WeightView> views;
    for (const Projection& part : stacked) {
      views.push_back(rows_of(as_stored(tensor(part.name + ".weight", {part.outputs, config_.d_model})), part.mine));
      if (has_bias) {
        append_floats(tensor(part.name + ".bias", {part.outputs}), part.mine, linear.bias);
      }
    }
    linear.matrix = columns_cut(std::move(views));
    return linear;
  }

  LinearWeights inputs_cut(const std::string& name, std::int64_t inputs, Range mine, std::vector<Range> slices,
                           bool has_bias) const {
    const TensorView matrix = tensor(name + ".weight", {config_.d_model, inputs});
    return {rows_cut(cols_of(as_stored(matrix), mine), std::move(slices)),
            has_bias ? vector(name + ".bias", config_.d_model) : std::vector<float>{}};
  }
};

}  // namespace

std::unique_ptr<Weights> map_weights(const ModelConfig& config, const TensorSource& source, const ShardPlan& plan,
                                     DType dtype) {
  if (config.family == "gpt2") {
    return std::make_unique<Gpt2Weights>(config, source, plan, dtype);
  }
  return std::make_unique<LlamaWeights>(config, source, plan, dtype);
}

}  // namespace specdec
