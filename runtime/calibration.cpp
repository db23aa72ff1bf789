#include "runtime/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

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

struct Weighed {
  double weights = 0;
  double keys = 0;
  double all() const { return weights + keys; }
};

Weighed one_row(const ModelConfig& model, DType dtype, double context, int ranks) {
  const PassWork work =
      work_of(model, {.context = static_cast<std::int64_t>(context), .ranks = ranks, .weights = dtype});
  return {work.weight_bytes, work.cache_bytes};
}

Weighed one_row_of_draft(const CalibrationData& data) { return one_row(data.draft, data.draft_dtype, data.context, 1); }

/// What is read in `seconds` of a pass beside the overhead of its layers.
double reading_of(double seconds, double overhead) { return std::max(seconds - overhead, kLeastReading * seconds); }

/// The costs by which weights are multiplied so that passes of 1, 2, ... rows take `seconds` at `rate`, and what the first one takes longer.
std::vector<double> costs_of(const std::vector<double>& seconds, double overhead, const Weighed& bytes, double rate) {
  const double waits = reading_of(seconds.front(), overhead) - bytes.all() / rate;
  std::vector<double> costs;
  for (const double time : seconds) {
    const double cost = ((reading_of(time, overhead) - waits) * rate - bytes.keys) / bytes.weights;
    costs.push_back(costs.empty() ? 1 : std::max(cost, kLeastReading));
  }
  return costs;
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
  const double first = one_row + after_all * (std::max(passes.draft[1], one_row) - one_row);
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
    hardware.refill_rate = one_row_of_draft(data).all() / reading_of(quicker, overhead);
  }
}

}  // namespace

Hardware calibrate(const CalibrationData& data) {
  check(!data.passes.target.empty() && data.passes.draft.size() > 1 && data.drafts.drafted > 0,
        "a calibration has passes, and a job that drafts");
  Hardware hardware;
  hardware.ranks = data.ranks;
  hardware.cache_bytes = 4;
  hardware.payload_bytes = 4;
  hardware.layer_seconds = data.passes.layer;
  const auto layers = static_cast<double>(data.target.layers);
  const double overhead = layers * data.passes.layer;

  const Weighed draft = one_row_of_draft(data);
  const double draft_overhead = static_cast<double>(data.draft.layers) * data.passes.layer;
  hardware.cached_bytes = kCacheMargin * draft.weights;
  hardware.cache.rate = draft.all() / reading_of(data.passes.draft.front(), draft_overhead);
  hardware.refill_rate = draft.all() / reading_of(data.passes.draft_after_target, draft_overhead);

  const Weighed share = one_row(data.target, data.target_dtype, data.context, data.ranks);
  const double together = share.all() / reading_of(data.alone.compute, overhead);
  hardware.memory.rate = together;
  if (data.ranks > 1) {
    const Weighed whole = one_row(data.target, data.target_dtype, data.context, 1);
    hardware.memory.rate = std::max(together, whole.all() / reading_of(data.passes.whole_target, overhead));
    hardware.node_read_rate = together * data.ranks;
    hardware.ranks_per_node = data.ranks;
  }
  // Passes after as many of the draft are as in loops, but for what jobs add to them, other ranks that read too and all else that goes on: as long for any number of rows, since it is
  // reading that waits. The two jobs say how long, each of its own rows; what they differ by is noise as far as other rows go. One row comes in loops that do not draft.
  const double driven_out = std::min(draft.weights, share.weights * data.ranks);
  hardware.displaced_seconds = displaced_by_a_byte(data, draft.weights);
  const double displaced = hardware.displaced_seconds * driven_out;
  const double longer_alone = data.alone.compute - (data.passes.target.front() - displaced);
  const double longer_drafting = data.drafts.compute - interpolated(data.passes.target, data.drafts.drafted + 1);
  std::vector<double> in_jobs = data.passes.target;
  for (double& seconds : in_jobs) seconds += (longer_alone + longer_drafting) / 2 - displaced;
  in_jobs.front() = data.alone.compute;
  hardware.memory.rows_cost = costs_of(in_jobs, overhead, share, hardware.memory.rate);
  // What stays in the cache is scored in loops of its own, whatever the jobs' target does there.
  std::vector<double> cached = data.passes.draft;
  check(data.passes.beside.scored.size() < cached.size(), "as many rows are scored in loops as one after another");
  std::ranges::copy(data.passes.beside.scored, cached.begin() + 1);
  hardware.cache.rows_cost = costs_of(cached, draft_overhead, draft, hardware.cache.rate);

  if (data.ranks > 1) {
    const double all_reduces = 2 * layers;
    const double row = static_cast<double>(data.target.d_model) * hardware.payload_bytes;
    const double first = data.alone.all_reduce / all_reduces;
    const double second = data.drafts.all_reduce / all_reduces;
    constexpr double kLeast = 1e-13;  // seconds a byte: 10 TB/s
    const double a_byte =
        std::clamp((second - first) / (row * data.drafts.drafted), kLeast, std::max(first / row, kLeast));
    hardware.interconnect.link = {.algorithm = LinkAlgorithm::kOneShot,
                                  .latency = std::max(first - a_byte * row, 0.0),
                                  .bandwidth = (data.ranks - 1) / a_byte};
  }

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
  if (hardware.node_read_rate > 0) {
    text += fmt::format("node_read_GBps: {:.4g}\nranks_per_node: {}\n", hardware.node_read_rate / kGiga,
                        hardware.ranks_per_node);
  }
  text += fmt::format("cache:\n  MB: {:.4g}\n  read_GBps: {:.4g}\n  rows_cost: {}\n  refill_GBps: {:.4g}\n",
                      hardware.cached_bytes / kMega, hardware.cache.rate / kGiga, list_of(hardware.cache.rows_cost),
                      hardware.refill_rate / kGiga);
  text += fmt::format("  cold_drafted_us_per_MB: {:.4g}\n  cold_loop_us: {:.4g}\n  displaced_us_per_MB: {:.4g}\n",
                      hardware.cold_drafted_seconds * kMega / kMicro, hardware.cold_loop_seconds / kMicro,
                      hardware.displaced_seconds * kMega / kMicro);
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
