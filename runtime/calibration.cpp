#include "runtime/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/error.h"
#include "runtime/cost_model.h"
#include "runtime/delays.h"
#include "runtime/pass_work.h"
#include "runtime/statistics.h"
#include "runtime/theory.h"
#include "runtime/units.h"

namespace specdec {
namespace {

/// Of a pass, that is left for reading whatever the overheads seem to be, and of a row's cost.
constexpr double kLeastReading = 0.05;
/// A model of so many times the draft's bytes still counts as one that stays in the cache.
constexpr double kCacheMargin = 1.25;

/// By how much what is found of a model has to hang on what is found of one as large as the cache.
constexpr double kToldApart = 0.6;

/// A byte that costs nothing would be read at no rate: 10 TB/s.
constexpr double kLeastOfByte = 1e-13;  // seconds
/// The same of an operation of attention, which then costs nothing.
constexpr double kLeastOfOperation = 1e-17;

struct Weighed {
  double weights = 0;
  double keys = 0;
  double attention = 0;  ///< operations
  double all() const { return weights + keys; }
};

PassWork work_over(std::int64_t rows, const ModelConfig& model, DType dtype, double context, int ranks,
                   std::optional<std::int64_t> logit_rows = {}) {
  return work_of(model, {.rows = rows,
                         .logit_rows = logit_rows,
                         .context = static_cast<std::int64_t>(context),
                         .ranks = ranks,
                         .weights = dtype});
}

Weighed of_rows(std::int64_t rows, const ModelConfig& model, DType dtype, double context, int ranks) {
  const PassWork work = work_over(rows, model, dtype, context, ranks);
  return {work.weight_bytes, work.cache_bytes, work.attention};
}

Weighed one_row(const ModelConfig& model, DType dtype, double context, int ranks) {
  return of_rows(1, model, dtype, context, ranks);
}

Weighed one_row_of_draft(const CalibrationData& data) { return one_row(data.draft, data.draft_dtype, data.context, 1); }

/// What is read in `seconds` of a pass beside the overhead of its layers.
double reading_of(double seconds, double overhead) { return std::max(seconds - overhead, kLeastReading * seconds); }

/// The costs by which weights are multiplied so that passes of 1, 2, ... rows take `seconds` at `rate`, beside what `others(rows)` says, and what the first one takes longer.
template <typename Others>
std::vector<double> costs_of(const std::vector<double>& seconds, Others others, double weights, double rate) {
  const double waits = reading_of(seconds.front(), others(1)) - weights / rate;
  std::vector<double> costs;
  for (const double time : seconds) {
    const double cost = (reading_of(time, others(std::ssize(costs) + 1)) - waits) * rate / weights;
    costs.push_back(costs.empty() ? 1 : std::max(cost, kLeastReading));
  }
  return costs;
}

/// Seconds that keys and values take as the job's ranks read them, all at once.
struct KeysCost {
  double of_byte = 0;
  double of_operation = 0;
  double of(const Weighed& pass) const { return pass.keys * of_byte + pass.attention * of_operation; }
};

struct Line {
  double height = 0;
  double slope = 0;
};

/// Of values over 1, 2, ... rows, by least squares. Where noise makes either part negative it is the other alone.
Line line_over_rows(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean_rows = (count + 1) / 2;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double covariance = 0;
  double variance = 0;
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto rows = static_cast<double>(i + 1);
    covariance += (rows - mean_rows) * (values[i] - mean);
    variance += (rows - mean_rows) * (rows - mean_rows);
    products += rows * values[i];
    squares += rows * rows;
  }
  const double slope = std::max(covariance / variance, 0.0);
  const double height = mean - slope * mean_rows;
  return height < 0 ? Line{0, std::max(products / squares, 0.0)} : Line{height, slope};
}

/// Of a pass that does not read.
double overhead_of(const CalibrationData& data, const ModelConfig& model, const Hardware& hardware,
                   const Weighed& read) {
  return static_cast<double>(model.layers) * data.passes.layer + hardware.attention_seconds(read.attention);
}

/// Of as much as a rank's own cache has, what is found there, by a pass of a model that fills it about; as `hardware` has it where keys fill it too.
double share_of_filling(const CalibrationData& data, const ModelConfig& model, Hardware hardware) {
  const double unless_told = hardware.own_cache_share;
  const Weighed read = one_row(model, data.draft_dtype, data.context, 1);
  const auto found_if = [&](double share) {
    hardware.own_cache_share = share;
    return hardware.share_in_own_cache(read.all());
  };
  const double least = found_if(0);
  const double most = found_if(1);
  if (most - least < kToldApart) return unless_told;
  const double of_byte =
      reading_of(data.passes.filling_own_cache, overhead_of(data, model, hardware, read)) / read.all();
  const double found = (1 / hardware.cache.rate - of_byte) / (1 / hardware.cache.rate - 1 / hardware.own_cache_rate);
  return std::clamp((found - least) / (most - least), 0.0, 1.0);
}

/// What a rank's own cache keeps, and how fast it is read there. The draft shows how fast what cores share is read, unless its own holds it too.
void learn_own_cache(const CalibrationData& data, Hardware& hardware) {
  const PassTimes& passes = data.passes;
  const auto bytes = static_cast<double>(passes.own_cache_bytes);
  const std::optional<ModelConfig> model = model_for_cache(data.draft, data.draft_dtype, passes.own_cache_bytes);
  if (passes.in_own_cache <= 0 || !model || one_row_of_draft(data).all() < kKeptNothing * bytes) return;
  const Weighed read = one_row(*model, data.draft_dtype, data.context, 1);
  const double rate = read.all() / reading_of(passes.in_own_cache, overhead_of(data, *model, hardware, read));
  if (rate <= hardware.cache.rate) return;
  hardware.own_cache_bytes = bytes;
  hardware.own_cache_rate = rate;
  if (passes.filling_own_cache > 0) {
    hardware.own_cache_share =
        share_of_filling(data, widened_to(*model, data.draft_dtype, passes.own_cache_bytes), hardware);
  }
}

bool keys_are_timed(const CalibrationData& data) { return data.passes.after_more_keys.size() > 1; }

/// More of them are as many bytes for any number of rows, and operations for each. Where none were timed a byte costs `of_byte`.
KeysCost keys_cost(const CalibrationData& data, double of_byte) {
  if (!keys_are_timed(data)) return {.of_byte = of_byte};
  const auto after = [&](double context) { return one_row(data.target, data.target_dtype, context, data.ranks); };
  const Weighed none = after(0);
  const Weighed more = after(static_cast<double>(data.passes.more_keys));
  const Line longer = line_over_rows(data.passes.after_more_keys);
  return {.of_byte = longer.height / (more.keys - none.keys),
          .of_operation = longer.slope / (more.attention - none.attention)};
}

/// What a layer of the target takes more than one that has next to no weights, of whose pass its keys and values take `keys`. Where those were not timed nobody can tell it from them.
double cold_layer(const CalibrationData& data, double keys) {
  if (!keys_are_timed(data)) return 0;
  const auto layers = static_cast<double>(data.target.layers);
  return std::max((data.passes.beside_products - keys) / layers - data.passes.layer, 0.0);
}

/// Of 1, 2, ... rows, at a number between.
double interpolated(const std::vector<double>& costs, double rows) {
  const auto below = std::min(static_cast<std::size_t>(rows), costs.size());
  if (below == costs.size()) return costs.back();
  return costs[below - 1] + (rows - static_cast<double>(below)) * (costs[below] - costs[below - 1]);
}

/// What a pass of the target takes longer for each byte that is read for drafting before it, by drafts of two sizes.
double displaced_by_a_byte(const CalibrationData& data, double draft_bytes) {
  const std::vector<double>& of_draft = data.passes.target;
  const std::vector<double>& of_smaller = data.passes.target_after_smaller;
  const double more = draft_bytes - one_row(smaller_draft(data.draft), data.draft_dtype, data.context, 1).weights;
  if (more <= 0 || of_smaller.size() < 2) return 0;
  std::vector<double> longer;
  for (std::size_t i = 1; i < of_smaller.size(); ++i) longer.push_back(of_draft[i] - of_smaller[i]);
  return std::max(midmean(longer) / more, 0.0);
}

/// A latency, and each byte beyond.
Link link_of(const CalibrationData& data, double row) {
  const auto all_reduces = static_cast<double>(2 * data.target.layers);
  std::vector<TimedAllReduce> seen = data.all_reduces;
  if (seen.size() < 2) {
    seen = {{row, data.alone.all_reduce / all_reduces},
            {row * (data.drafts.drafted + 1), data.drafts.all_reduce / all_reduces}};
  }
  const TimedAllReduce& least = seen.front();
  double products = 0;
  double squares = 0;
  for (const TimedAllReduce& timed : seen) {
    products += (timed.bytes - least.bytes) * (timed.seconds - least.seconds);
    squares += (timed.bytes - least.bytes) * (timed.bytes - least.bytes);
  }
  const double of_byte =
      std::clamp(products / squares, kLeastOfByte, std::max(least.seconds / least.bytes, kLeastOfByte));
  return {.algorithm = LinkAlgorithm::kOneShot,
          .latency = std::max(least.seconds - of_byte * least.bytes, 0.0),
          .bandwidth = (data.ranks - 1) / of_byte};
}

/// What all-reduces of a job take beyond those of ranks that do nothing else: they wait for the rank that still reads.
void count_waits_as_reading(CalibrationLoop& loop, double all_reduces) {
  const double waits = std::max(loop.all_reduce - all_reduces, 0.0);
  loop.all_reduce -= waits;
  loop.compute += waits;
}

/// What a loop has beside its passes. The pair's loops say what it is with a target as large as theirs, those of a model in the cache what it is without.
void learn_loops(const CalibrationData& data, const Weighed& share, Hardware& hardware) {
  const PassTimes& passes = data.passes;
  const bool stays = hardware.keeps(share.weights * data.ranks);
  const double drafted = data.drafts.drafted;
  const auto sent = [&](double rows) {
    if (data.ranks == 1) return 0.0;
    return hardware.interconnect.broadcast(0, data.ranks) +
           decision_gather(hardware.interconnect, data.target, data.whole_rows, std::llround(rows), data.ranks);
  };
  const double loop = std::max(data.alone.rest + data.alone.broadcast - sent(1), 0.0);
  const double after_all = std::pow(data.drafts.alpha, drafted);
  const double one_row = stays ? passes.draft[0] : passes.draft_after_target;
  const auto first_over = [&](std::int64_t rows) {
    const PassWork work = work_over(rows, data.draft, data.draft_dtype, data.context, 1, 1);  // as loop_work() has it
    return pass_time(hardware, work, 1, stays ? WeightsIn::kCache : WeightsIn::kCacheOnce).work;
  };
  const double first = one_row + after_all * (first_over(2) - first_over(1));
  const double more =
      data.drafts.rest + data.drafts.broadcast - data.alone.rest - data.alone.broadcast - (sent(drafted + 1) - sent(1));
  hardware.accepted_seconds = passes.beside.accepted;
  const double stand = tokens_per_loop(data.drafts.alpha, std::llround(drafted)) - 1;
  const double beside =
      data.drafts.draft + more - first - (drafted - 1) * passes.draft[0] - stand * hardware.accepted_seconds;
  const bool apart = !stays && passes.beside.loop > 0;
  hardware.loop_seconds = apart ? std::min(loop, passes.beside.loop) : loop;
  hardware.cold_loop_seconds = loop - hardware.loop_seconds;
  hardware.drafted_seconds = apart ? passes.beside.drafted : std::max(beside / drafted, 0.0);
  const double colder = beside - drafted * hardware.drafted_seconds;
  hardware.cold_drafted_seconds = apart ? std::max(colder / (drafted * one_row_of_draft(data).weights), 0.0) : 0;
  if (apart && colder < 0) {
    const double overhead = static_cast<double>(data.draft.layers) * data.passes.layer;
    const double quicker = std::max(one_row + colder, passes.draft[0]);
    const Weighed draft = one_row_of_draft(data);
    hardware.refill_rate = draft.all() / reading_of(quicker, overhead + hardware.attention_seconds(draft.attention));
  }
}

}  // namespace

Hardware calibrate(const CalibrationData& jobs) {
  check(!jobs.passes.target.empty() && jobs.passes.draft.size() > 1 && jobs.drafts.drafted > 0,
        "a calibration has passes, and a job that drafts");
  CalibrationData data = jobs;
  // Between passes of a loop comes other work.
  if (data.passes.beside.pass > 0) data.passes.draft.front() = data.passes.beside.pass;
  Hardware hardware;
  hardware.ranks = data.ranks;
  hardware.cache_bytes = 4;
  hardware.payload_bytes = 4;
  hardware.layer_seconds = data.passes.layer;
  const auto layers = static_cast<double>(data.target.layers);
  if (data.ranks > 1) {
    const double row = static_cast<double>(data.target.d_model) * hardware.payload_bytes;
    hardware.interconnect.link = link_of(data, row);
    for (CalibrationLoop* const loop : {&data.alone, &data.drafts}) {
      const auto bytes = static_cast<std::size_t>(std::llround(row * (loop->drafted + 1)));
      count_waits_as_reading(*loop, 2 * layers * hardware.interconnect.all_reduce(bytes, data.ranks));
    }
  }

  const Weighed draft = one_row_of_draft(data);
  const double draft_overhead = static_cast<double>(data.draft.layers) * data.passes.layer;
  const Weighed share = one_row(data.target, data.target_dtype, data.context, data.ranks);
  const KeysCost keys = keys_cost(data, reading_of(data.alone.compute, layers * data.passes.layer) / share.all());
  hardware.cold_layer_seconds = cold_layer(data, keys.of(share));
  const double overhead = layers * (data.passes.layer + hardware.cold_layer_seconds);
  hardware.attention_rate = keys.of_operation > kLeastOfOperation ? 1 / keys.of_operation : 0;
  const auto beside_draft = [&](std::int64_t rows) {
    const Weighed pass = of_rows(rows, data.draft, data.draft_dtype, data.context, 1);
    return draft_overhead + pass.attention * keys.of_operation;
  };
  hardware.cached_bytes = kCacheMargin * draft.weights;
  hardware.cache.rate = draft.all() / reading_of(data.passes.draft.front(), beside_draft(1));
  hardware.refill_rate = draft.all() / reading_of(data.passes.draft_after_target, beside_draft(1));

  learn_own_cache(data, hardware);

  const auto beside_share = [&](std::int64_t rows) {
    return overhead + keys.of(of_rows(rows, data.target, data.target_dtype, data.context, data.ranks));
  };
  const double together = reading_of(data.alone.compute, beside_share(1)) / share.weights;  // seconds a byte
  double apart = together;
  if (data.ranks > 1) {
    const Weighed whole = one_row(data.target, data.target_dtype, data.context, 1);
    // Others delay a byte of keys by as much as one of weights.
    const double others = overhead + whole.attention * keys.of_operation + whole.keys * (keys.of_byte - together);
    apart = std::min(together, reading_of(data.passes.whole_target, others) / whole.all());
    hardware.node_read_rate = data.ranks / together;
    hardware.ranks_per_node = data.ranks;
  }
  hardware.memory.rate = 1 / apart;
  hardware.memory.keys_rate = 1 / std::max(keys.of_byte - together + apart, kLeastOfByte);
  // Passes after as many of the draft are as in loops, but for what jobs add to them: other ranks that read too, and that wait for one another the longer the more rows there are, and all
  // else that goes on. The two jobs say how much, each of its own rows. Much of it comes with the first drafted token and the rest with more of them ever less, so it grows with their
  // root; more rows that add less are noise, and then it is the mean.
  const double driven_out = std::min(draft.weights, share.weights * data.ranks);
  hardware.displaced_seconds = displaced_by_a_byte(data, draft.weights);
  const double displaced = hardware.displaced_seconds * driven_out;
  const double longer_alone = data.alone.compute - (data.passes.target.front() - displaced);
  const double longer_drafting = data.drafts.compute - interpolated(data.passes.target, data.drafts.drafted + 1);
  const double with_drafting = std::max(longer_drafting - longer_alone, 0.0);
  const double always = (longer_alone + longer_drafting - with_drafting) / 2;
  std::vector<double> in_jobs = data.passes.target;
  for (std::size_t drafted = 0; drafted < in_jobs.size(); ++drafted) {
    in_jobs[drafted] +=
        always + with_drafting * std::sqrt(static_cast<double>(drafted) / data.drafts.drafted) - displaced;
  }
  // One row comes in loops that do not draft.
  in_jobs.front() = data.alone.compute;
  hardware.memory.rows_cost = costs_of(in_jobs, beside_share, share.weights, hardware.memory.rate);
  // What stays in the cache is scored in loops of its own, whatever the jobs' target does there.
  std::vector<double> cached = data.passes.draft;
  check(data.passes.beside.scored.size() < cached.size(), "as many rows are scored in loops as one after another");
  std::ranges::copy(data.passes.beside.scored, cached.begin() + 1);
  // Of what stays in a cache keys and values are read as weights are.
  const auto beside_cached = [&](std::int64_t rows) {
    const Weighed pass = of_rows(rows, data.draft, data.draft_dtype, data.context, 1);
    return beside_draft(rows) + pass.keys / hardware.cache.rate;
  };
  hardware.cache.rows_cost = costs_of(cached, beside_cached, draft.weights, hardware.cache.rate);

  if (const std::optional<Delays> delays = data.loops ? delays_of(*data.loops) : std::nullopt) {
    const double between = (data.ranks > 1 ? 2 * layers : 0) + 1;  // collectives, and beside them
    Jitter& jitter = hardware.disturbance.compute;
    jitter.tail_probability = std::min(delays->number / (between * data.ranks), 1.0);
    jitter.tail_mean = delays->mean;
  }

  learn_loops(data, share, hardware);
  return hardware;
}

namespace {

std::string list_of(const std::vector<double>& costs) {
  std::vector<std::string> words;
  for (const double cost : costs) words.push_back(fmt::format("{:.3f}", cost));
  return fmt::format("[{}]", fmt::join(words, ", "));
}

}  // namespace

std::string hardware_yaml(const Hardware& hardware, const std::string& interconnect_file) {
  std::string text = fmt::format("source: \"{}\"\nranks: {}\nread_GBps: {:.4g}\nrows_cost: {}\n", hardware.source,
                                 hardware.ranks, hardware.memory.rate / kGiga, list_of(hardware.memory.rows_cost));
  if (hardware.memory.keys_rate > 0) text += fmt::format("keys_GBps: {:.4g}\n", hardware.memory.keys_rate / kGiga);
  if (hardware.attention_rate > 0) text += fmt::format("attention_gflops: {:.4g}\n", hardware.attention_rate / kGiga);
  if (hardware.node_read_rate > 0) {
    text += fmt::format("node_read_GBps: {:.4g}\nranks_per_node: {}\n", hardware.node_read_rate / kGiga,
                        hardware.ranks_per_node);
  }
  text += fmt::format("cache:\n  MB: {:.4g}\n  read_GBps: {:.4g}\n  rows_cost: {}\n  refill_GBps: {:.4g}\n",
                      hardware.cached_bytes / kMega, hardware.cache.rate / kGiga, list_of(hardware.cache.rows_cost),
                      hardware.refill_rate / kGiga);
  if (hardware.own_cache_rate > 0) {
    text += fmt::format("  own_MB: {:.4g}\n  own_GBps: {:.4g}\n  own_share: {:.4g}\n", hardware.own_cache_bytes / kMega,
                        hardware.own_cache_rate / kGiga, hardware.own_cache_share);
  }
  text += fmt::format(
      "  cold_drafted_us_per_MB: {:.4g}\n  cold_loop_us: {:.4g}\n  cold_layer_us: {:.4g}\n  displaced_us_per_MB: "
      "{:.4g}\n",
      hardware.cold_drafted_seconds * kMega / kMicro, hardware.cold_loop_seconds / kMicro,
      hardware.cold_layer_seconds / kMicro, hardware.displaced_seconds * kMega / kMicro);
  text += fmt::format("layer_us: {:.4g}\ndrafted_us: {:.4g}\naccepted_us: {:.4g}\nloop_us: {:.4g}\n",
                      hardware.layer_seconds / kMicro, hardware.drafted_seconds / kMicro,
                      hardware.accepted_seconds / kMicro, hardware.loop_seconds / kMicro);
  text += fmt::format("cache_bytes: {:g}\npayload_bytes: {:g}\n", hardware.cache_bytes, hardware.payload_bytes);
  const Jitter& jitter = hardware.disturbance.compute;
  if (jitter.tail_probability > 0) {
    text += fmt::format("jitter:\n  sigma: 0\n  tail_probability: {:.4g}\n  tail_mean_us: {:.4g}\n",
                        jitter.tail_probability, jitter.tail_mean / kMicro);
  }
  if (!interconnect_file.empty()) text += fmt::format("interconnect: {}\n", interconnect_file);
  return text;
}

std::string interconnect_yaml(const Interconnect& interconnect) {
  return fmt::format("source: \"{}\"\nalgorithm: {}\nlatency_us: {:.4g}\nbandwidth_GBps: {:.4g}\n", interconnect.source,
                     name_of(interconnect.link.algorithm), interconnect.link.latency / kMicro,
                     interconnect.link.bandwidth / kGiga);
}

}  // namespace specdec
