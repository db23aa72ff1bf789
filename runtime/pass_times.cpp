#include "runtime/pass_times.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "backend/cpu/isa.h"
#include "backend/factory.h"
#include "models/tokenizer.h"
#include "models/transformer.h"
#include "parallel/communicator.h"
#include "parallel/host_cores.h"
#include "parallel/self_communicator.h"
#include "runtime/clock.h"
#include "runtime/prompt_ids.h"
#include "runtime/statistics.h"

namespace specdec {
namespace {

constexpr int kTurns = 7;
constexpr int kWarmUps = 3;
constexpr int kPasses = 5;
constexpr double kLeastTime = 0.005;  // seconds of passes over as many rows within a turn

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
        group_(group_of(ranks)),
        weights_(std::move(weights)),
        model_(shape, *weights_, backend, *group_, {.dtype = dtype, .max_rows = kTimedRows}),
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

  Transformer& model() { return model_; }

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
  static std::unique_ptr<Communicator> group_of(int ranks) {
    if (ranks == 1) return std::make_unique<SelfCommunicator>();
    return std::make_unique<FirstOf>(ranks);
  }

  Backend& backend_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<TensorSource> weights_;
  Transformer model_;
  KvCache cache_;
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> parent_;
  std::vector<Token> tokens_;
};

/// Of the config's prompts, for a target with `vocabulary` tokens.
double mean_prompt_tokens(const RunConfig& config, std::int64_t vocabulary) {
  if (config.prompts.empty()) return 0;
  const std::unique_ptr<Tokenizer> tokenizer = has_tokenizer(config.target) ? load_tokenizer(config.target) : nullptr;
  double tokens = 0;
  for (std::size_t i = 0; i < config.prompts.size(); ++i) {
    tokens += static_cast<double>(prompt_ids(config, i, tokenizer.get(), vocabulary).size());
  }
  return tokens / static_cast<double>(config.prompts.size());
}

/// The target's layers with hardly anything in them.
ModelConfig hollow(ModelConfig shape) {
  shape.heads = shape.kv_heads = 1;
  shape.head_dim = 16;
  shape.d_model = 16;
  shape.feed_forward = 32;
  shape.vocabulary = 64;
  return shape;
}

/// Passes of one model over 1, 2, ... rows.
class Series {
 public:
  explicit Series(TimedModel& model, std::size_t most = kTimedRows) : model_(model), seconds_(most) {}

  /// Of each number of rows some in a row, as decoding has them, of which the first are not counted. `before` comes before each.
  template <typename Before>
  void turn(Before before) {
    for (std::size_t rows = 1; rows <= seconds_.size(); ++rows) {
      for (int pass = 0; pass < kWarmUps; ++pass) {
        before();
        model_.pass(rows);
      }
      const double until = now_seconds() + kLeastTime;
      for (int pass = 0; pass < kPasses || now_seconds() < until; ++pass) {
        before();
        seconds_[rows - 1].push_back(model_.pass(rows));
      }
    }
  }
  void turn() {
    turn([] {});
  }

  std::vector<double> medians() const {
    std::vector<double> found;
    for (const std::vector<double>& of : seconds_) found.push_back(median(of));
    return found;
  }

 private:
  TimedModel& model_;
  std::vector<std::vector<double>> seconds_;
};

/// All in turns, so that a machine that grows slower does so for all.
PassTimes time_rank(const RunConfig& config, int ranks, int threads) {
  const Isa isa = config.parallel.isa == "auto" ? detect_isa() : parse_isa(config.parallel.isa).value();
  const std::unique_ptr<Backend> backend =
      make_backend({.name = config.backend, .isa = isa, .threads = threads, .pin = pinning_wanted()});
  const ModelConfig shape = load_model_config(config.target);
  const ModelConfig draft_shape = load_model_config(config.draft);
  const std::int64_t longest = std::min(shape.context, draft_shape.context) - static_cast<std::int64_t>(kTimedRows);
  const std::int64_t context = std::clamp<std::int64_t>(
      std::llround(mean_prompt_tokens(config, shape.vocabulary)) + config.decode.max_new_tokens / 2, 0,
      std::max<std::int64_t>(longest, 0));
  TimedModel part(shape, open_weights(config.target, config.weights), config.dtype, *backend, context, ranks);
  std::optional<TimedModel> whole;
  if (ranks > 1) whole.emplace(shape, open_weights(config.target, config.weights), config.dtype, *backend, context);
  TimedModel draft(draft_shape, open_weights(config.draft, config.weights), config.type_of_draft(), *backend, context);
  TimedModel layers(hollow(shape), open_weights({}, {.random = true}), config.dtype, *backend, 0);
  Series of_part(part);
  std::optional<Series> of_whole;
  if (whole) of_whole.emplace(*whole, 1);
  Series of_draft(draft);
  Series of_layers(layers, 1);
  std::vector<double> draft_after_target;
  std::vector<WarmLoops> loops;
  const auto draft_first = [&] { draft_after_target.push_back(draft.pass(1)); };
  for (int turn = 0; turn < kTurns; ++turn) {
    of_part.turn(draft_first);
    if (of_whole) of_whole->turn(draft_first);
    of_draft.turn();
    of_layers.turn();
    loops.push_back(warm_loops(config, draft.model(), context));
  }
  const auto middle = [&](double WarmLoops::*which) {
    std::vector<double> values;
    for (const WarmLoops& turn : loops) values.push_back(turn.*which);
    return median(std::move(values));
  };
  const std::vector<double> target = of_part.medians();
  return {.threads = threads,
          .target = target,
          .whole_target = of_whole ? of_whole->medians().front() : target.front(),
          .draft = of_draft.medians(),
          .draft_after_target = median(std::move(draft_after_target)),
          .layer = of_layers.medians().front() / static_cast<double>(shape.layers),
          .beside = {.loop = middle(&WarmLoops::loop),
                     .drafted = middle(&WarmLoops::drafted),
                     .accepted = middle(&WarmLoops::accepted)}};
}

}  // namespace

std::map<int, PassTimes> time_passes(const RunConfig& config, std::span<const std::int64_t> rank_counts, int cores) {
  std::map<int, PassTimes> times;
  for (const std::int64_t count : rank_counts) {
    const auto ranks = static_cast<int>(count);
    times[ranks] = time_rank(config, ranks, config.parallel.threads.value_or(std::max(cores / ranks, 1)));
  }
  return times;
}

}  // namespace specdec
