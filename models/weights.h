#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "models/config.h"
#include "models/tensor_source.h"
#include "parallel/shard_plan.h"

/// How a family names and lays out its tensors: the one place that differs between families. What comes out are views
/// of this rank's shard; only packing them reads mapped bytes, or makes random ones.
namespace specdec {

/// fp32 values in host memory; bias is empty where the family has none.
struct NormWeights {
  std::vector<float> weight;
  std::vector<float> bias;
};

/// A linear layer of this rank: its matrix and its bias, the latter empty where there is none. A column-parallel layer
/// has the bias of its own outputs, a row-parallel one the whole bias.
struct LinearWeights {
  LinearSpec matrix;
  std::vector<float> bias;
};

struct LayerWeights {
  NormWeights attention_norm;
  LinearWeights qkv;            ///< outputs: q, k, v of this rank's heads, in this order
  LinearWeights attention_out;  ///< cut along its inputs, this rank's query heads
  NormWeights mlp_norm;
  LinearWeights mlp_in;   ///< outputs: gate then up (SwiGLU), or the one matrix
  LinearWeights mlp_out;  ///< cut along its inputs
};

class Weights {
 public:
  virtual ~Weights() = default;
  virtual LayerWeights layer(std::int64_t index) const = 0;
  virtual NormWeights final_norm() const = 0;
  /// Rows of the output matrix that plan.vocabulary() names; the embedding's own where the head is tied.
  virtual LinearSpec head() const = 0;
  /// The whole tables, [vocabulary, d_model] and [context, d_model]; the latter has null data without learned
  /// positions.
  virtual WeightView token_embedding() const = 0;
  virtual WeightView position_embedding() const = 0;
};

/// Finds the family's tensors and checks all their shapes at once. Throws kBadInput for a tensor that is missing, has
/// another shape than the config says, or belongs to the model without a place in it (a bias that the config denies).
/// Both arguments by reference must outlive the result.
std::unique_ptr<Weights> map_weights(const ModelConfig& config, const TensorSource& source, const ShardPlan& plan,
                                     DType dtype);

}  // namespace specdec
