#include "models/sublayers.h"

#include <algorithm>

#include "backend/error.h"
#include "models/rope.h"

namespace specdec {
namespace {

/// Rows start on cache lines.
std::int64_t padded(std::int64_t cols) {
  constexpr std::int64_t kLine = 16;
  return (cols + kLine - 1) / kLine * kLine;
}

}  // namespace

std::unique_ptr<Buffer> upload_floats(Backend& backend, std::span<const float> values) {
  if (values.empty()) {
    return nullptr;
  }
  const Stream stream;
  std::unique_ptr<Buffer> buffer = backend.allocate(values.size_bytes());
  backend.upload(buffer->data(), std::as_bytes(values), stream);
  backend.synchronize(stream);
  return buffer;
}

Norm::Norm(Backend& backend, NormKind kind, float eps, const NormWeights& weights)
    : backend_(backend),
      kind_(kind),
      eps_(eps),
      weight_(upload_floats(backend, weights.weight)),
      bias_(upload_floats(backend, weights.bias)) {
  check(weight_ != nullptr && (kind == NormKind::kLayer) == (bias_ != nullptr), "Norm: weights of another kind");
}

void Norm::forward(ConstRows x, Rows y, Stream stream) const {
  if (kind_ == NormKind::kRms) {
    backend_.rms_norm(x, weight_->floats(), eps_, y, stream);
  } else {
    backend_.layer_norm(x, weight_->floats(), bias_->floats(), eps_, y, stream);
  }
}

void Norm::add_forward(Rows x, ConstRows branch, Rows y, Stream stream) const {
  if (kind_ == NormKind::kRms) {
    backend_.add_rms_norm(x, branch, weight_->floats(), eps_, y, stream);
  } else {
    backend_.add_layer_norm(x, branch, weight_->floats(), bias_->floats(), eps_, y, stream);
  }
}

Workspace::Workspace(Backend& backend, std::int64_t floats)
    : memory_(backend.allocate(std::max<std::int64_t>(floats, 1) * sizeof(float))), size_(floats) {}

std::int64_t Workspace::footprint(std::int64_t rows, std::int64_t cols) { return rows * padded(cols); }

Rows Workspace::take(std::int64_t rows, std::int64_t cols) {
  const Rows taken = {memory_->floats() + used_, rows, cols, padded(cols)};
  used_ += footprint(rows, cols);
  check(used_ <= size_, "Workspace: a pass of more rows than it was made for");
  return taken;
}

Rotary::Rotary(Backend& backend, const ModelConfig& config) : backend_(backend) {
  if (config.positions == PositionKind::kRotary) {
    const RopeTables tables = rope_tables(config.rope, config.head_dim, config.context);
    cos_ = upload_floats(backend, tables.cos);
    sin_ = upload_floats(backend, tables.sin);
  }
}

void Rotary::attention(Rows query, Rows key, ConstRows value, KvStore& kv, std::int64_t layer, const RowChain& chain,
                       std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) const {
  if (cos_) {
    backend_.rope_append_attention({query, key, value, cos_->floats(), sin_->floats()}, kv, layer, chain, kv_head,
                                   scale, out, stream);
  } else {
    backend_.kv_append(kv, layer, chain, key, value, stream);
    backend_.attention(query, kv, layer, chain, kv_head, scale, out, stream);
  }
}

SelfAttention::SelfAttention(const SublayerContext& context, const LayerWeights& weights, std::int64_t layer)
    : backend_(context.backend),
      rotary_(context.rotary),
      workspace_(context.workspace),
      qkv_(context.backend, weights.qkv.matrix, upload_floats(context.backend, weights.qkv.bias)),
      out_(context.backend, context.group, weights.attention_out.matrix,
           upload_floats(context.backend, weights.attention_out.bias)),
      layer_(layer),
      query_cols_(context.plan.query_heads().size() * context.config.head_dim),
      kv_cols_(context.plan.kv_heads().size() * context.config.head_dim),
      kv_head_(context.plan.kv_head_of_query_head()),
      scale_(context.config.attention_scale) {}

std::int64_t SelfAttention::footprint(const ShardPlan& plan, std::int64_t rows) {
  const std::int64_t head_dim = plan.shape().head_dim;
  const std::int64_t queries = plan.query_heads().size() * head_dim;
  return Workspace::footprint(rows, queries + 2 * plan.kv_heads().size() * head_dim) +
         Workspace::footprint(rows, queries);
}

void SelfAttention::forward(ConstRows x, const RowChain& chain, KvCache& cache, Rows y, Stream stream) {
  workspace_.reset();
  const Rows qkv = workspace_.take(x.rows, qkv_.out_features());
  const Rows mixed = workspace_.take(x.rows, query_cols_);
  const Rows query = qkv.slice_cols(0, query_cols_);
  const Rows key = qkv.slice_cols(query_cols_, kv_cols_);
  const Rows value = qkv.slice_cols(query_cols_ + kv_cols_, kv_cols_);

  qkv_.forward(x, qkv, stream);
  rotary_.attention(query, key, value, cache.store(), layer_, chain, kv_head_, scale_, mixed, stream);
  out_.forward(mixed, y, stream);
}

SwiGluMlp::SwiGluMlp(const SublayerContext& context, const LayerWeights& weights)
    : workspace_(context.workspace),
      gate_up_(context.backend, weights.mlp_in.matrix, upload_floats(context.backend, weights.mlp_in.bias)),
      down_(context.backend, context.group, weights.mlp_out.matrix,
            upload_floats(context.backend, weights.mlp_out.bias)) {}

std::int64_t SwiGluMlp::footprint(const ShardPlan& plan, std::int64_t rows) {
  const std::int64_t wide = plan.feed_forward().size();
  return Workspace::footprint(rows, 2 * wide) + Workspace::footprint(rows, wide);
}

void SwiGluMlp::forward(ConstRows x, const RowChain& /*chain*/, KvCache& /*cache*/, Rows y, Stream stream) {
  workspace_.reset();
  const Rows gate_up = workspace_.take(x.rows, gate_up_.out_features());
  const Rows gated = workspace_.take(x.rows, gate_up_.out_features() / 2);

  gate_up_.forward_gated(x, gate_up, gated, stream);
  down_.forward(gated, y, stream);
}

GeluMlp::GeluMlp(const SublayerContext& context, const LayerWeights& weights)
    : backend_(context.backend),
      workspace_(context.workspace),
      in_(context.backend, weights.mlp_in.matrix, upload_floats(context.backend, weights.mlp_in.bias)),
      out_(context.backend, context.group, weights.mlp_out.matrix,
           upload_floats(context.backend, weights.mlp_out.bias)) {}

void GeluMlp::forward(ConstRows x, const RowChain& /*chain*/, KvCache& /*cache*/, Rows y, Stream stream) {
  workspace_.reset();
  const Rows wide = workspace_.take(x.rows, in_.out_features());

  in_.forward(x, wide, stream);
  backend_.gelu_tanh(wide, stream);
  out_.forward(wide, y, stream);
}

}  // namespace specdec
