#include "runtime/pass_times.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "backend/cpu/cache_sizes.h"
#include "backend/cpu/isa.h"
#include "backend/factory.h"
#include "models/tokenizer.h"
#include "parallel/host_cores.h"
#include "parallel/self_communicator.h"
#include "runtime/clock.h"
#include "runtime/hardware.h"
#include "runtime/pass_work.h"
#include "runtime/prompt_ids.h"
#include "runtime/statistics.h"
#include "runtime/timed_model.h"

namespace specdec {
namespace {

constexpr int kTurns = 5;
// Of passes over as many rows within a turn; slow ones are few.
constexpr int kWarmUps = 3;
constexpr int kLeastPasses = 2;
constexpr double kLeastTime = 0.02;  // seconds
/// Tokens by which the two contexts differ between which keys and values are timed, as far as the models' have room for them.
constexpr std::int64_t kMoreKeys = 384;

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
template <typename Timed>
class Series {
 public:
  explicit Series(Timed& model, std::size_t most = kTimedRows) : model_(model), seconds_(most) {}

  /// Of each number of rows some in a row, as decoding has them, of which the first are not counted. `before(rows)` comes before each.
  template <typename Before>
  void turn(Before before) {
    for (std::size_t rows = 1; rows <= seconds_.size(); ++rows) {
      const auto within = [&](double until, int pass, int least) { return pass < least || now_seconds() < until; };
      const double warm = now_seconds() + kLeastTime;
      for (int pass = 0; pass < kWarmUps && within(warm, pass, 1); ++pass) {
        before(rows);
        model_.pass(rows);
      }
      const double until = now_seconds() + kLeastTime;
      for (int pass = 0; within(until, pass, kLeastPasses); ++pass) {
        before(rows);
        seconds_[rows - 1].push_back(model_.pass(rows));
      }
    }
  }
  void turn() {
    turn([](std::size_t /*rows*/) {});
  }

  std::vector<double> medians() const {
    std::vector<double> found;
    for (const std::vector<double>& of : seconds_) found.push_back(median(of));
    return found;
  }

 private:
  Timed& model_;
  std::vector<std::vector<double>> seconds_;
};

/// Of passes that read more keys and values, what those take: each beside one that reads fewer.
class MoreKeys {
 public:
  MoreKeys(TimedRanks& ranks, std::size_t fewer, std::size_t more) : ranks_(ranks), fewer_(fewer), more_(more) {}
  double pass(std::size_t rows) {
    const double more = ranks_.pass(rows, more_);
    return more - ranks_.pass(rows, fewer_);
  }

 private:
  TimedRanks& ranks_;
  std::size_t fewer_;
  std::size_t more_;
};

/// Of passes, what is not products.
class BesideProducts {
 public:
  explicit BesideProducts(TimedRanks& ranks) : ranks_(ranks) {}
  double pass(std::size_t rows) {
    ranks_.pass(rows);
    return ranks_.beside_products().value_or(0);
  }

 private:
  TimedRanks& ranks_;
};

/// All in turns, so that a machine that grows slower does so for all.
PassTimes time_rank(const RunConfig& config, int ranks, int threads, int cores) {
  const Isa isa = config.parallel.isa == "auto" ? detect_isa() : parse_isa(config.parallel.isa).value();
  const BackendOptions options = {.name = config.backend, .isa = isa, .threads = threads, .pin = pinning_wanted()};
  const ModelConfig shape = load_model_config(config.target);
  const ModelConfig draft_shape = load_model_config(config.draft);
  const std::int64_t longest = std::min(shape.context, draft_shape.context) - static_cast<std::int64_t>(kTimedRows);
  const std::int64_t context = std::clamp<std::int64_t>(
      std::llround(mean_prompt_tokens(config, shape.vocabulary)) + config.decode.max_new_tokens / 2, 0,
      std::max<std::int64_t>(longest, 0));
  const bool has_room = context + kMoreKeys <= longest;
  const std::int64_t other_context = has_room ? context + kMoreKeys : std::max<std::int64_t>(context - kMoreKeys, 0);
  const auto made = [&](Communicator& group, Backend& backend) {
    return std::make_unique<TimedModel>(shape, open_weights(config.target, config.weights), config.dtype, backend,
                                        std::vector{context, other_context}, kTimedRows, group);
  };
  TimedRanks part(ranks, cores, options, config.parallel.deadline, made);
  Backend& backend = part.backend();
  SelfCommunicator self;
  const auto alone = [&](const ModelConfig& of, std::unique_ptr<TensorSource> weights, DType dtype,
                         std::int64_t after) {
    auto model =
        std::make_unique<TimedModel>(of, std::move(weights), dtype, backend, std::vector{after}, kTimedRows, self);
    model->prefill();
    return model;
  };
  const std::unique_ptr<TimedModel> whole =
      ranks > 1 ? alone(shape, open_weights(config.target, config.weights), config.dtype, context) : nullptr;
  const auto draft = alone(draft_shape, open_weights(config.draft, config.weights), config.type_of_draft(), context);
  const auto layers = alone(hollow(shape), open_weights({}, {.random = true}), config.dtype, 0);
  const auto small =
      alone(smaller_draft(draft_shape), open_weights({}, {.random = true}), config.type_of_draft(), context);
  const std::int64_t own_cache_bytes = backend.on_host() ? second_level_cache_bytes().value_or(0) * threads : 0;
  const std::optional<ModelConfig> narrow = model_for_cache(draft_shape, config.type_of_draft(), own_cache_bytes);
  const auto of_cache = [&](const ModelConfig& model) {
    return alone(model, open_weights({}, {.random = true}), config.type_of_draft(), context);
  };
  const auto in_own_cache = narrow ? of_cache(*narrow) : nullptr;
  const auto filling = narrow ? of_cache(widened_to(*narrow, config.type_of_draft(), own_cache_bytes)) : nullptr;
  Series of_part(part);
  Series of_part_small(part, kComparedRows);
  MoreKeys more_keys = has_room ? MoreKeys(part, 0, 1) : MoreKeys(part, 1, 0);
  Series of_keys(more_keys, kComparedRows);
  BesideProducts beside_products(part);
  Series of_beside_products(beside_products, 1);
  std::optional<Series<TimedModel>> of_whole;
  if (whole) of_whole.emplace(*whole, 1);
  std::optional<Series<TimedModel>> of_own_cache;
  if (in_own_cache) of_own_cache.emplace(*in_own_cache, 1);
  std::optional<Series<TimedModel>> of_filling;
  if (filling) of_filling.emplace(*filling, 1);
  Series of_draft(*draft);
  Series of_layers(*layers, 1);
  std::vector<double> draft_after_target;
  std::vector<WarmLoops> loops;
  // As many drafted tokens as a loop has that scores so many rows, one before a single row too.
  const auto draft_first = [&](std::size_t rows) {
    draft_after_target.push_back(draft->pass(1));
    for (std::size_t token = 2; token < rows; ++token) draft->pass(1);
  };
  const auto small_first = [&](std::size_t rows) {
    for (std::size_t token = 1; token < std::max<std::size_t>(rows, 2); ++token) small->pass(1);
  };
  const auto stir = [&](std::size_t /*rows*/) { part.stir(); };
  for (int turn = 0; turn < kTurns; ++turn) {
    of_part.turn(draft_first);
    of_part_small.turn(small_first);
    if (other_context != context) of_keys.turn();
    of_beside_products.turn(draft_first);
    if (of_whole) of_whole->turn(draft_first);
    of_draft.turn(stir);
    of_layers.turn(stir);
    if (of_own_cache) of_own_cache->turn(stir);
    if (of_filling) of_filling->turn(stir);
    loops.push_back(warm_loops(config, draft->model(), small->model(), kTimedRows, context, [&] { part.stir(); }));
  }
  const auto middle = [&](double WarmLoops::*which) {
    std::vector<double> values;
    for (const WarmLoops& turn : loops) values.push_back(turn.*which);
    return median(std::move(values));
  };
  const std::vector<double> target = of_part.medians();
  std::vector<double> scored;
  for (std::size_t i = 0; i < loops.front().scored.size(); ++i) {
    std::vector<double> values;
    for (const WarmLoops& turn : loops) values.push_back(turn.scored[i]);
    scored.push_back(median(std::move(values)));
  }
  return {.threads = threads,
          .target = target,
          .target_after_smaller = of_part_small.medians(),
          .whole_target = of_whole ? of_whole->medians().front() : target.front(),
          .draft = of_draft.medians(),
          .draft_after_target = median(std::move(draft_after_target)),
          .in_own_cache = of_own_cache ? of_own_cache->medians().front() : 0,
          .filling_own_cache = of_filling ? of_filling->medians().front() : 0,
          .own_cache_bytes = own_cache_bytes,
          .layer = of_layers.medians().front() / static_cast<double>(shape.layers),
          .beside_products = of_beside_products.medians().front(),
          .after_more_keys = other_context != context ? of_keys.medians() : std::vector<double>{},
          .more_keys = std::abs(other_context - context),
          .beside = {.loop = middle(&WarmLoops::loop),
                     .pass = middle(&WarmLoops::pass),
                     .drafted = middle(&WarmLoops::drafted),
                     .accepted = middle(&WarmLoops::accepted),
                     .scored = std::move(scored)}};
}

}  // namespace

ModelConfig smaller_draft(ModelConfig draft) {
  draft.layers = std::max<std::int64_t>(draft.layers / 4, 1);
  return draft;
}

std::optional<ModelConfig> model_for_cache(ModelConfig draft, DType dtype, std::int64_t bytes) {
  constexpr std::int64_t kNarrowest = 16;
  ModelConfig model = smaller_draft(std::move(draft));
  model.kv_heads = model.heads;
  while (work_of(model, {.rows = 1, .weights = dtype}).weight_bytes > kKeptWhole * static_cast<double>(bytes)) {
    if (model.d_model / 2 < kNarrowest) return {};
    model.d_model /= 2;
    model.feed_forward = std::max<std::int64_t>(model.feed_forward / 2, 1);
    model.heads = model.kv_heads = std::max<std::int64_t>(model.heads / 2, 1);
  }
  return model;
}

ModelConfig widened_to(ModelConfig model, DType dtype, std::int64_t bytes) {
  constexpr std::int64_t kStep = 16;  // whole slices, and vectors
  const auto weights = [&] { return work_of(model, {.rows = 1, .weights = dtype}).weight_bytes; };
  const double before = weights();
  model.feed_forward += kStep;
  const double of_step = weights() - before;
  const auto steps = static_cast<std::int64_t>((static_cast<double>(bytes) - before) / of_step);
  model.feed_forward += kStep * (steps - 1);
  return model;
}

std::map<int, PassTimes> time_passes(const RunConfig& config, std::span<const std::int64_t> rank_counts, int cores) {
  std::map<int, PassTimes> times;
  for (const std::int64_t count : rank_counts) {
    const auto ranks = static_cast<int>(count);
    times[ranks] = time_rank(config, ranks, config.parallel.threads.value_or(std::max(cores / ranks, 1)), cores);
  }
  return times;
}

}  // namespace specdec
