#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "models/weights.h"
#include "parallel/communicator.h"
#include "parallel/linear.h"
#include "parallel/shard_plan.h"

/// What a block is made of. Everything here is arithmetic on this rank's shard; the collectives are inside
/// RowParallelLinear.
namespace specdec {

/// Values in a backend's memory; null for none.
std::unique_ptr<Buffer> upload_floats(Backend& backend, std::span<const float> values);

/// RMSNorm or LayerNorm over whole rows.
class Norm {
 public:
  Norm(Backend& backend, NormKind kind, float eps, const NormWeights& weights);
  /// x and y [rows, d_model]; may be the same.
  void forward(ConstRows x, Rows y, Stream stream) const;
  /// x += branch, then forward(x, y).
  void add_forward(Rows x, ConstRows branch, Rows y, Stream stream) const;

 private:
  Backend& backend_;
  NormKind kind_;
  float eps_;
  std::unique_ptr<Buffer> weight_;
  std::unique_ptr<Buffer> bias_;
};

/// Memory for the activations inside one sublayer. All sublayers share it, since they run one after another, and it is
/// sized once for the largest, so that a pass allocates nothing.
class Workspace {
 public:
  Workspace(Backend& backend, std::int64_t floats);
  /// Floats that `rows` x `cols` take.
  static std::int64_t footprint(std::int64_t rows, std::int64_t cols);
  /// Gives all of it back.
  void reset() { used_ = 0; }
  Rows take(std::int64_t rows, std::int64_t cols);

 private:
  std::unique_ptr<Buffer> memory_;
  std::int64_t size_;
  std::int64_t used_ = 0;
};

/// Rotary positions of queries and keys; without tables (a family with learned positions) rows stay as they are.
class Rotary {
 public:
  Rotary(Backend& backend, const ModelConfig& config);
  /// Queries and keys [rows, heads * head_dim], row i at chain.position[i]; then keys and values go into the slots of `chain`, and attention() is what it says. Queries and keys are
  /// nobody's afterwards.
  void attention(Rows query, Rows key, ConstRows value, KvStore& kv, std::int64_t layer, const RowChain& chain,
                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) const;

 private:
  Backend& backend_;
  std::unique_ptr<Buffer> cos_;
  std::unique_ptr<Buffer> sin_;
};

/// One residual branch of a block: x -> y, added to the stream by the caller.
class Sublayer {
 public:
  virtual ~Sublayer() = default;
  /// x and y [rows, d_model], y contiguous. `chain` says where the rows stand; what a sublayer remembers goes into
  /// `cache`.
  virtual void forward(ConstRows x, const RowChain& chain, KvCache& cache, Rows y, Stream stream) = 0;
  /// The weights that forward() reads first.
  virtual const PackedLinear& first_weights() const = 0;
  /// Those that are read first after it.
  virtual void set_next(const PackedLinear& weights) = 0;
  /// Bytes of weights that one pass reads.
  virtual std::size_t bytes() const = 0;
};

/// Where a sublayer computes; all of it outlives the sublayer.
struct SublayerContext {
  Backend& backend;
  Communicator& group;
  const ModelConfig& config;
  const ShardPlan& plan;
  const Rotary& rotary;
  Workspace& workspace;
};

/// Causal self-attention of this rank's heads, keys and values in layer `layer` of the cache.
class SelfAttention final : public Sublayer {
 public:
  SelfAttention(const SublayerContext& context, const LayerWeights& weights, std::int64_t layer);
  void forward(ConstRows x, const RowChain& chain, KvCache& cache, Rows y, Stream stream) override;
  const PackedLinear& first_weights() const override { return qkv_.weight(); }
  void set_next(const PackedLinear& weights) override { out_.set_next(weights); }
  std::size_t bytes() const override { return qkv_.bytes() + out_.bytes(); }
  /// Workspace for `rows` rows, in floats.
  static std::int64_t footprint(const ShardPlan& plan, std::int64_t rows);

 private:
  Backend& backend_;
  const Rotary& rotary_;
  Workspace& workspace_;
  ColumnParallelLinear qkv_;
  RowParallelLinear out_;
  std::int64_t layer_;
  std::int64_t query_cols_;
  std::int64_t kv_cols_;
  std::vector<std::int32_t> kv_head_;
  float scale_;
};

/// out(silu(gate x) * up x): the gated MLP of the Llama family.
class SwiGluMlp final : public Sublayer {
 public:
  SwiGluMlp(const SublayerContext& context, const LayerWeights& weights);
  void forward(ConstRows x, const RowChain& chain, KvCache& cache, Rows y, Stream stream) override;
  const PackedLinear& first_weights() const override { return gate_up_.weight(); }
  void set_next(const PackedLinear& weights) override { down_.set_next(weights); }
  std::size_t bytes() const override { return gate_up_.bytes() + down_.bytes(); }
  static std::int64_t footprint(const ShardPlan& plan, std::int64_t rows);

 private:
  Workspace& workspace_;
  ColumnParallelLinear gate_up_;
  RowParallelLinear down_;
};

/// out(gelu(in x)): the MLP of the GPT-2 family.
class GeluMlp final : public Sublayer {
 public:
  GeluMlp(const SublayerContext& context, const LayerWeights& weights);
  void forward(ConstRows x, const RowChain& chain, KvCache& cache, Rows y, Stream stream) override;
  const PackedLinear& first_weights() const override { return in_.weight(); }
  void set_next(const PackedLinear& weights) override { out_.set_next(weights); }
  std::size_t bytes() const override { return in_.bytes() + out_.bytes(); }

 private:
  Backend& backend_;
  Workspace& workspace_;
  ColumnParallelLinear in_;
  RowParallelLinear out_;
};

}  // namespace specdec
