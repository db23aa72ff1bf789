#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "models/tensor_source.h"
#include "parallel/communicator.h"
#include "parallel/head.h"
#include "parallel/shard_plan.h"
#include "parallel/tracer.h"

namespace specdec {

/// Rows of one pass. Row i follows row parent[i] of the same pass, or the last committed token when parent[i] is -1.
struct PassRows {
  std::span<const Token> tokens;  ///< empty: they are in Transformer::tokens() already
  std::span<const std::int32_t> position;
  std::span<const std::int32_t> parent;
};

/// Which rows get logits.
enum class LogitRows : std::uint8_t { kNone, kLast, kAll };

struct TransformerOptions {
  DType dtype = DType::kBF16;      ///< of packed weights
  std::int64_t max_rows = 16;      ///< rows of a pass with LogitRows::kAll, K + 1 when scoring
  std::int64_t prefill_rows = 64;  ///< rows of a prefill block
  Tracer* tracer = nullptr;        ///< sees layers and head; outlives the transformer
};

/// A decoder-only transformer, cut over the ranks of one group (`self` for a draft on one rank). One class for all
/// families: a block is a list of sublayers made from ModelConfig, a family is a mapping of names (models/weights.h).
class Transformer {
 public:
  /// Packs this rank's shard; `source` must outlive the transformer (embedding rows are read from it).
  Transformer(const ModelConfig& config, const TensorSource& source, Backend& backend, Communicator& group,
              const TransformerOptions& options);
  ~Transformer();

  const ModelConfig& config() const { return config_; }
  const ShardPlan& plan() const { return plan_; }
  ParallelHead& head() { return *head_; }
  /// Where the tokens of the next pass are read, in the backend's memory, as many as a pass has rows: who chooses tokens there can leave them
  /// there.
  Token* tokens() { return tokens_; }
  /// Bytes of weights that one pass reads on this rank.
  std::size_t weight_bytes() const;

  /// A cache for one sequence of at most `capacity` tokens (0: the model's whole context).
  KvCache make_cache(std::int64_t capacity = 0);

  /// Runs `rows` (at most max(max_rows, prefill_rows); at most max_rows with kAll) through the stack, appending them to
  /// `cache` without committing. Returns this rank's logits, [rows, local vocabulary] with kAll, one row with kLast, none with kNone,
  /// valid until the next pass. Throws kInternal for a token outside the vocabulary, a position outside the context, or more rows than
  /// the cache has room for.
  ConstRows forward(const PassRows& rows, KvCache& cache, LogitRows logits, Stream stream);

  /// Appends and commits `tokens` in blocks of prefill_rows, as a chain, and returns the logits of the last row.
  ConstRows prefill(std::span<const Token> tokens, KvCache& cache, Stream stream);

  /// Runs layers [layers.begin, layers.end) on hidden [rows, d_model] in place; forward() is this over all layers
  /// between embedding and head. For early exit and draft heads.
  void run_layers(Range layers, Rows hidden, const RowChain& chain, KvCache& cache, Stream stream);

 private:
  void check_rows(const PassRows& rows) const;
  void place(const PassRows& rows, Stream stream);
  void embed(Rows hidden, Stream stream);
  void score(ConstRows hidden, Rows logits, Stream stream);

  ModelConfig config_;
  TransformerOptions options_;
  Backend& backend_;
  Communicator& group_;
  ShardPlan plan_;
  struct State;  // weights and activations
  std::unique_ptr<State> state_;
  Token* tokens_ = nullptr;  // in the backend's memory
  std::unique_ptr<ParallelHead> head_;
};

}  // namespace specdec
