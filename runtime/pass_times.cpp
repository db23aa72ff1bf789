#include "runtime/pass_times.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "backend/cpu/isa.h"
#include "backend/factory.h"
#include "models/transformer.h"
#include "parallel/communicator.h"
#include "runtime/clock.h"
#include "runtime/statistics.h"

namespace specdec {
namespace {

constexpr int kTurns = 7;
constexpr int kWarmUps = 3;
constexpr int kPasses = 5;

/// Rank 0 of several of which the others are not there: sums are its own part, whose values nobody looks at.
class FirstOf final : public Communicator {
 public:
  explicit FirstOf(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  std::string_view transport() const override { return "none"; }
  void all_reduce(std::span<float>, Stream) override {}
  void all_reduce(std::span<BF16>, Stream) override {}
  void all_gather(std::span<const std::byte>, std::span<std::byte>, Stream) override {}
  void gather(std::span<const std::byte>, std::span<std::byte>, int, Stream) override {}
  void broadcast(std::span<std::byte>, int, Stream) override {}
  void barrier() override {}

 private:
  int ranks_;
};

/// A model, or rank 0's part of it.
class TimedModel {
 public:
  TimedModel(const ModelConfig& shape, std::unique_ptr<TensorSource> weights, DType dtype, Backend& backend,
             std::int64_t context, int ranks = 1)
      : backend_(backend),
        group_(ranks),
        weights_(std::move(weights)),
        model_(shape, *weights_, backend, group_, {.dtype = dtype, .max_rows = kTimedRows}),
        cache_(model_.make_cache(context + kTimedRows)),
        position_(kTimedRows),
        parent_(kTimedRows),
        tokens_(static_cast<std::size_t>(context + kTimedRows)) {
    std::iota(position_.begin(), position_.end(), static_cast<std::int32_t>(context));
    std::iota(parent_.begin(), parent_.end(), -1);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<Token>(static_cast<std::int64_t>(10 + i) % shape.vocabulary);
    }
    if (context > 0) {
      model_.prefill(std::span(tokens_).first(static_cast<std::size_t>(context)), cache_, Stream{});
    }
  }

  double pass(std::size_t rows) {
    const double start = now_seconds();
    model_.forward({std::span(tokens_).last(kTimedRows).first(rows), std::span(position_).first(rows),
                    std::span(parent_).first(rows)},
                   cache_, LogitRows::kAll, Stream{});
    backend_.synchronize(Stream{});
    const double seconds = now_seconds() - start;
    cache_.commit_prefix(0);
    return seconds;
  }

 private:
  Backend& backend_;
  FirstOf group_;
  std::unique_ptr<TensorSource> weights_;
  Transformer model_;
  KvCache cache_;
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> parent_;
  std::vector<Token> tokens_;
};

/// The target's layers with hardly anything in them.
ModelConfig hollow(ModelConfig shape) {
  shape.heads = shape.kv_heads = 1;
  shape.head_dim = 16;
  shape.d_model = 16;
  shape.feed_forward = 32;
  shape.vocabulary = 64;
  return shape;
}

/// Of passes of 1, 2, ... rows, in turns, so that a machine that grows slower does so for all; of each some in a row, as decoding has them, of which the first are not
/// counted. `before` comes before each.
template <typename Before>
std::vector<double> rows_of(TimedModel& model, Before before) {
  std::vector<std::vector<double>> seconds(kTimedRows);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t rows = 1; rows <= kTimedRows; ++rows) {
      for (int pass = -kWarmUps; pass < kPasses; ++pass) {
        before();
        const double time = model.pass(rows);
        if (pass >= 0) seconds[rows - 1].push_back(time);
      }
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of : seconds) medians.push_back(median(std::move(of)));
  return medians;
}

}  // namespace

PassTimes time_passes(const RunConfig& config, std::span<const std::int64_t> rank_counts) {
  const Isa isa = config.parallel.isa == "auto" ? detect_isa() : parse_isa(config.parallel.isa).value();
  const std::unique_ptr<Backend> backend = make_backend({.name = config.backend, .isa = isa, .threads = 1});
  const ModelConfig shape = load_model_config(config.target);
  const ModelConfig draft_shape = load_model_config(config.draft);
  const std::int64_t longest = std::min(shape.context, draft_shape.context) - static_cast<std::int64_t>(kTimedRows);
  const std::int64_t context =
      std::clamp<std::int64_t>(config.decode.max_new_tokens / 2, 0, std::max<std::int64_t>(longest, 0));
  TimedModel draft(draft_shape, open_weights(config.draft, config.weights), config.type_of_draft(), *backend, context);
  std::set<int> counts{1};
  for (const std::int64_t ranks : rank_counts) counts.insert(static_cast<int>(ranks));
  PassTimes times;
  for (const int ranks : counts) {
    TimedModel target(shape, open_weights(config.target, config.weights), config.dtype, *backend, context, ranks);
    times.target[ranks] = rows_of(target, [&] { draft.pass(1); });
  }
  times.draft = rows_of(draft, [] {});
  TimedModel layers(hollow(shape), open_weights({}, {.random = true}), config.dtype, *backend, 0);
  times.layer = rows_of(layers, [] {}).front() / static_cast<double>(shape.layers);
  return times;
}

}  // namespace specdec
