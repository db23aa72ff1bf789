#include "models/transformer.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "backend/error.h"
#include "models/sublayers.h"
#include "models/weights.h"

namespace specdec {
namespace {

constexpr TraceKind kEmbed{.name = "embed", .value = "rows"};
constexpr TraceKind kLayer{.name = "layer", .value = "layer", .numbered = true};
constexpr TraceKind kAttention{.name = "attention", .value = "rows"};
constexpr TraceKind kMlp{.name = "mlp", .value = "rows"};
constexpr TraceKind kHead{.name = "head", .value = "rows"};

/// A residual branch: hidden += sublayer(norm(hidden)).
struct Branch {
  const TraceKind& kind;
  Norm norm;
  std::unique_ptr<Sublayer> sublayer;
};
using Block = std::vector<Branch>;

Block make_block(const SublayerContext& context, const LayerWeights& weights, std::int64_t layer) {
  const ModelConfig& config = context.config;
  const auto norm = [&](const NormWeights& values) {
    return Norm(context.backend, config.norm, config.norm_eps, values);
  };
  Block block;
  block.push_back({kAttention, norm(weights.attention_norm), std::make_unique<SelfAttention>(context, weights, layer)});
  if (config.mlp == MlpKind::kSwiGlu) {
    block.push_back({kMlp, norm(weights.mlp_norm), std::make_unique<SwiGluMlp>(context, weights)});
  } else {
    block.push_back({kMlp, norm(weights.mlp_norm), std::make_unique<GeluMlp>(context, weights)});
  }
  return block;
}

/// Activations of one pass, [rows, cols], contiguous.
class Activations {
 public:
  Activations(Backend& backend, std::int64_t rows, std::int64_t cols)
      : memory_(backend.allocate(std::max<std::int64_t>(rows * cols, 1) * sizeof(float))),
        all_{memory_->floats(), rows, cols, cols} {}
  Rows rows(std::int64_t count) const { return all_.slice_rows(0, count); }

 private:
  std::unique_ptr<Buffer> memory_;
  Rows all_;
};

std::int64_t workspace_floats(const ShardPlan& plan, std::int64_t rows) {
  return std::max(SelfAttention::footprint(plan, rows), SwiGluMlp::footprint(plan, rows));
}

}  // namespace

struct Transformer::State {
  State(const ModelConfig& config, const ShardPlan& plan, Backend& backend, Communicator& group, const Weights& weights,
        const TransformerOptions& options)
      : most_rows(std::max(options.max_rows, options.prefill_rows)),
        token_table(backend.make_table(weights.token_embedding())),
        position_table(config.positions == PositionKind::kLearned ? backend.make_table(weights.position_embedding())
                                                                  : nullptr),
        rotary(backend, config),
        workspace(backend, workspace_floats(plan, most_rows)),
        final_norm(backend, config.norm, config.norm_eps, weights.final_norm()),
        hidden(backend, most_rows, config.d_model),
        normed(backend, most_rows, config.d_model),
        branch(backend, most_rows, config.d_model),
        logits(backend, options.max_rows, plan.vocabulary().size()),
        tokens(backend.allocate(most_rows * sizeof(Token))),
        positions(backend.allocate(most_rows * sizeof(std::int32_t))),
        recorder(backend.make_recorder()),
        prefill_position(options.prefill_rows),
        prefill_parent(options.prefill_rows) {
    const SublayerContext context{backend, group, config, plan, rotary, workspace};
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      blocks.push_back(make_block(context, weights.layer(layer), layer));
    }
    std::iota(prefill_parent.begin(), prefill_parent.end(), -1);
  }

  std::int64_t most_rows;
  std::unique_ptr<RowTable> token_table;
  std::unique_ptr<RowTable> position_table;  // null without learned positions
  Rotary rotary;
  Workspace workspace;
  std::vector<Block> blocks;
  Norm final_norm;
  Activations hidden;
  Activations normed;
  Activations branch;
  Activations logits;
  std::unique_ptr<Buffer> tokens;     // [rows]
  std::unique_ptr<Buffer> positions;  // [rows], of learned positions
  std::unique_ptr<PassRecorder> recorder;
  std::vector<std::int32_t> prefill_position;
  std::vector<std::int32_t> prefill_parent;
};

Transformer::Transformer(const ModelConfig& config, const TensorSource& source, Backend& backend, Communicator& group,
                         const TransformerOptions& options)
    : config_(config),
      options_(options),
      backend_(backend),
      group_(group),
      plan_(config.shard_shape(), group.rank(), group.size()) {
  check(options.max_rows >= 1 && options.prefill_rows >= 1, "Transformer: passes need rows");
  const std::unique_ptr<Weights> weights = map_weights(config_, source, plan_, options.dtype);
  state_ = std::make_unique<State>(config_, plan_, backend, group, *weights, options);
  tokens_ = reinterpret_cast<Token*>(state_->tokens->data());
  head_ = std::make_unique<ParallelHead>(backend, group, plan_, weights->head());
  Sublayer* last = nullptr;
  for (const Block& block : state_->blocks) {
    for (const Branch& branch : block) {
      if (last != nullptr) {
        last->set_next(branch.sublayer->first_weights());
      }
      last = branch.sublayer.get();
    }
  }
  if (last != nullptr) {
    last->set_next(head_->weight());
  }
}

Transformer::~Transformer() = default;

std::size_t Transformer::weight_bytes() const {
  std::size_t bytes = head_->bytes();
  for (const Block& block : state_->blocks) {
    for (const Branch& branch : block) {
      bytes += branch.sublayer->bytes();
    }
  }
  return bytes;
}

KvCache Transformer::make_cache(std::int64_t capacity) {
  return {backend_,
          {config_.layers, plan_.kv_heads().size(), config_.head_dim, capacity == 0 ? config_.context : capacity}};
}

ConstRows Transformer::forward(const PassRows& rows, KvCache& cache, LogitRows logits, Stream stream) {
  check_rows(rows);
  const std::int64_t count = std::ssize(rows.position);
  const RowChain chain{rows.position, rows.parent, cache.append(count)};
  const Rows hidden = state_->hidden.rows(count);
  const std::int64_t scored = logits == LogitRows::kNone ? 0 : logits == LogitRows::kLast ? 1 : count;
  check(scored <= options_.max_rows, "Transformer: logits of more rows than max_rows");
  const Rows scores = state_->logits.rows(scored);
  const auto operations = [&] {
    embed(hidden, stream);
    run_layers({0, config_.layers}, hidden, chain, cache, stream);
    if (scored > 0) {
      score(hidden.slice_rows(count - scored, scored), scores, stream);
    }
  };
  place(rows, stream);
  // Sums that go over the host cannot be recorded, and blocks of a prefill are not worth it.
  if (count <= options_.max_rows && (backend_.on_host() || group_.size() == 1 || group_.on_device())) {
    state_->recorder->run(static_cast<int>(logits), chain, cache.store(), std::ref(operations));
  } else {
    operations();
  }
  return scores;
}

ConstRows Transformer::prefill(std::span<const Token> tokens, KvCache& cache, Stream stream) {
  check(!tokens.empty(), "Transformer: prefill of no tokens");
  check(cache.pending() == 0, "Transformer: prefill over rows that were not committed");
  ConstRows logits;
  while (!tokens.empty()) {
    const std::size_t count = std::min(tokens.size(), state_->prefill_position.size());
    const auto first = static_cast<std::int32_t>(cache.committed());
    const std::span<std::int32_t> position(state_->prefill_position.data(), count);
    std::iota(position.begin(), position.end(), first);
    const PassRows block{tokens.first(count), position, {state_->prefill_parent.data(), count}};
    tokens = tokens.subspan(count);
    logits = forward(block, cache, tokens.empty() ? LogitRows::kLast : LogitRows::kNone, stream);
    cache.commit_prefix(static_cast<std::int64_t>(count));
    group_.report_progress();
  }
  return logits;
}

void Transformer::run_layers(Range layers, Rows hidden, const RowChain& chain, KvCache& cache, Stream stream) {
  check(0 <= layers.begin && layers.end <= config_.layers, "Transformer: layers outside the stack");
  const Rows normed = state_->normed.rows(hidden.rows);
  const Rows out = state_->branch.rows(hidden.rows);
  bool pending = false;  // a branch whose result is in `out` and not yet in `hidden`: it is added with the next norm
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const Span layer_span(options_.tracer, kLayer, layer);
    for (const Branch& branch : state_->blocks[layer]) {
      const Span branch_span(options_.tracer, branch.kind, hidden.rows);
      if (pending) {
        branch.norm.add_forward(hidden, out, normed, stream);
      } else {
        branch.norm.forward(hidden, normed, stream);
      }
      branch.sublayer->forward(normed, chain, cache, out, stream);
      pending = true;
    }
  }
  if (pending) {
    backend_.add(hidden, out, stream);
  }
}

void Transformer::check_rows(const PassRows& rows) const {
  const std::size_t count = rows.position.size();
  check(count >= 1 && std::ssize(rows.position) <= state_->most_rows,
        "Transformer: a pass of no rows or of more than it was made for");
  check((rows.tokens.empty() || rows.tokens.size() == count) && rows.parent.size() == count,
        "Transformer: every row has a token, a position and a parent");
  for (const Token token : rows.tokens) {
    check(token >= 0 && token < config_.vocabulary, "Transformer: a token outside the vocabulary");
  }
  for (const std::int32_t position : rows.position) {
    check(position >= 0 && position < config_.context, "Transformer: a position outside the context");
  }
}

/// Brings what embed() reads to where it reads it.
void Transformer::place(const PassRows& rows, Stream stream) {
  if (!rows.tokens.empty()) {
    backend_.upload(state_->tokens->data(), std::as_bytes(rows.tokens), stream);
  }
  if (state_->position_table != nullptr) {
    backend_.upload(state_->positions->data(), std::as_bytes(rows.position), stream);
  }
}

void Transformer::embed(Rows hidden, Stream stream) {
  const Span span(options_.tracer, kEmbed, hidden.rows);
  backend_.embed(*state_->token_table, tokens_, hidden, stream);
  if (state_->position_table != nullptr) {
    const Rows of_position = state_->normed.rows(hidden.rows);
    const auto* const positions = reinterpret_cast<const std::int32_t*>(state_->positions->data());
    backend_.embed(*state_->position_table, positions, of_position, stream);
    backend_.add(hidden, of_position, stream);
  }
}

/// Logits of hidden rows, after the final norm.
void Transformer::score(ConstRows hidden, Rows logits, Stream stream) {
  const Span span(options_.tracer, kHead, hidden.rows);
  const Rows normed = state_->normed.rows(hidden.rows);
  state_->final_norm.forward(hidden, normed, stream);
  head_->forward(normed, logits, stream);
}

}  // namespace specdec
