#include "runtime/pass_work.h"

#include "backend/error.h"
#include "backend/int8.h"
#include "parallel/shard_plan.h"

namespace specdec {
namespace {

/// The sizes that one rank has of a model.
struct Share {
  double query = 0;  ///< heads * head_dim
  double kv = 0;
  double feed_forward = 0;
  double vocabulary = 0;
};

Share of_rank(const ModelConfig& model, int rank, int ranks) {
  const ShardPlan plan(model.shard_shape(), rank, ranks);
  return {static_cast<double>(plan.query_heads().size() * model.head_dim),
          static_cast<double>(plan.kv_heads().size() * model.head_dim), static_cast<double>(plan.feed_forward().size()),
          static_cast<double>(plan.vocabulary().size())};
}

Share evenly(const ModelConfig& model, int ranks) {
  const auto part = [&](std::int64_t whole) { return static_cast<double>(whole) / ranks; };
  return {part(model.heads * model.head_dim), part(model.kv_heads * model.head_dim), part(model.feed_forward),
          part(model.vocabulary)};
}

double weights_of(const ModelConfig& model, const Share& share) {
  const double matrices = model.mlp == MlpKind::kSwiGlu ? 3 : 2;
  const double of_layer = 2 * share.query + 2 * share.kv + matrices * share.feed_forward;
  return static_cast<double>(model.d_model) * (static_cast<double>(model.layers) * of_layer + share.vocabulary);
}

PassWork work_of_share(const ModelConfig& model, const PassShape& pass, const Share& share) {
  check(pass.rows >= 1 && pass.logit_rows.value_or(1) >= 1 && pass.context >= 0 && pass.ranks >= 1,
        "a pass has rows, some of them logits, and ranks");
  const double weights = weights_of(model, share);
  const double head = static_cast<double>(model.d_model) * share.vocabulary;
  const auto rows = static_cast<double>(pass.rows);
  const auto layers = static_cast<double>(model.layers);
  const double keys = static_cast<double>(pass.context) + rows;
  PassWork work;
  work.rows = pass.rows;
  work.logit_rows = pass.logit_rows.value_or(pass.rows);
  work.weight_bytes = weights * bytes_of_weight(pass.weights);
  work.head_bytes = head * bytes_of_weight(pass.weights);
  work.cache_bytes = 2 * layers * share.kv * keys * pass.cache_bytes;
  work.attention = 4 * layers * rows * share.query * keys;
  work.operations = 2 * (rows * (weights - head) + static_cast<double>(work.logit_rows) * head) + work.attention;
  work.layers = model.layers;
  work.all_reduces = pass.ranks > 1 ? 2 * model.layers : 0;
  work.payload_bytes = static_cast<std::size_t>(rows * static_cast<double>(model.d_model) * pass.payload_bytes);
  return work;
}

}  // namespace

double bytes_of_weight(DType dtype) {
  constexpr double kOfScale = sizeof(float) / static_cast<double>(kInt8Group);
  return dtype == DType::kInt8 ? 1 + kOfScale : static_cast<double>(size_of(dtype));
}

PassWork work_of(const ModelConfig& model, const PassShape& pass) {
  if (pass.ranks > kCanonicalSlices) {
    return work_of_share(model, pass, evenly(model, pass.ranks));
  }
  PassWork most;
  for (int rank = 0; rank < pass.ranks; ++rank) {
    const PassWork work = work_of_rank(model, pass, rank);
    if (work.weight_bytes > most.weight_bytes) {
      most = work;
    }
  }
  return most;
}

PassWork work_of_rank(const ModelConfig& model, const PassShape& pass, int rank) {
  return work_of_share(model, pass, of_rank(model, rank, pass.ranks));
}

double operations_ratio(const ModelConfig& draft, const ModelConfig& target) {
  return work_of(draft, {}).operations / work_of(target, {}).operations;
}

}  // namespace specdec
