#include "runtime/cost_model.h"

#include <algorithm>
#include <cmath>

#include "backend/error.h"
#include "runtime/draft_link.h"
#include "runtime/round.h"
#include "runtime/theory.h"

namespace specdec {
namespace {

PassWork work_on(const Hardware& hardware, const ModelConfig& model, DType dtype, std::int64_t rows,
                 std::int64_t context, int ranks, std::optional<std::int64_t> logit_rows = {}) {
  return work_of(model, {.rows = rows,
                         .logit_rows = logit_rows,
                         .context = context,
                         .ranks = ranks,
                         .weights = dtype,
                         .cache_bytes = hardware.cache_bytes,
                         .payload_bytes = hardware.payload_bytes});
}

}  // namespace

double decision_bytes(const ModelConfig& target, bool whole_rows, std::int64_t rows) {
  constexpr std::int64_t kBytesOfRow = 8;  // (max, argmax)
  const std::int64_t of_row = whole_rows ? target.vocabulary * static_cast<std::int64_t>(sizeof(float)) : kBytesOfRow;
  return static_cast<double>(rows * of_row);
}

double decision_gather(const Interconnect& interconnect, const ModelConfig& target, bool whole_rows, std::int64_t rows,
                       int ranks) {
  return interconnect.gather(static_cast<std::size_t>(decision_bytes(target, whole_rows, rows)), ranks);
}

PassTime pass_time(const Hardware& hardware, const PassWork& work, int ranks, WeightsIn in, double in_own_cache) {
  const auto read_for = [&](std::int64_t rows) {
    return hardware.reading_seconds(work.weight_bytes, work.cache_bytes, rows, ranks, in, in_own_cache);
  };
  const double head = work.logit_rows < work.rows ? work.head_bytes / work.weight_bytes : 0;
  const double weights = (1 - head) * read_for(work.rows) + head * read_for(work.logit_rows);
  const double reading = weights + hardware.attention_seconds(work.attention);
  const double computing = hardware.operations_rate > 0 ? work.operations / hardware.operations_rate : 0;
  PassTime time;
  const double layer = hardware.layer_seconds + (in == WeightsIn::kMemory ? hardware.cold_layer_seconds : 0);
  time.work = std::max(reading, computing) + static_cast<double>(work.layers) * layer + hardware.pass_seconds;
  time.all_reduces = work.all_reduces;
  // A draft on one rank needs no interconnect, and 0 times what an empty one says is no number.
  if (work.all_reduces > 0) {
    time.meeting = static_cast<double>(work.all_reduces) * hardware.interconnect.all_reduce(work.payload_bytes, ranks);
  }
  return time;
}

LoopWork loop_work(const Hardware& hardware, const PredictedJob& job, std::int64_t k) {
  check(k >= 0, "K is not negative");
  LoopWork loop;
  const int ranks = target_ranks(job.placement, job.ranks);
  check(ranks > 0, "a rank is left for the target");
  loop.target_ranks = ranks;
  const PassWork score = work_on(hardware, job.target, job.target_dtype, k + 1, job.context, ranks);
  const bool target_stays = hardware.keeps(score.weight_bytes * ranks);
  // What rank 0 reads in a loop, as far as its own cache may have it.
  double in_a_loop = score.weight_bytes + score.cache_bytes;
  double displaced = 0;
  if (k > 0) {
    const bool sharded = job.placement == Placement::kSharded;
    const auto draft_over = [&](std::int64_t rows) {
      // Of the tokens that it was not fed yet the draft wants what follows the last.
      return work_on(hardware, job.draft, job.draft_dtype, rows, job.context, sharded ? ranks : 1, 1);
    };
    const PassWork draft = draft_over(1);
    loop.drafting_ranks = drafts_together(job.placement) ? ranks : 1;
    const bool draft_stays = hardware.keeps(draft.weight_bytes * loop.drafting_ranks);
    const double in_a_draft = draft.weight_bytes + draft.cache_bytes;
    const bool drafts_apart = job.placement == Placement::kDedicated;
    if (!drafts_apart) in_a_loop += in_a_draft;
    const auto draft_time = [&](const PassWork& work, WeightsIn in, double read_between) {
      return pass_time(hardware, work, loop.drafting_ranks, in, hardware.share_in_own_cache(read_between));
    };
    const WeightsIn later = draft_stays ? WeightsIn::kCache : WeightsIn::kMemory;
    const WeightsIn first = draft_stays && !target_stays ? WeightsIn::kCacheOnce : later;
    const double before_first = drafts_apart ? in_a_draft : in_a_loop;
    loop.first_draft = draft_time(draft, first, before_first);
    loop.first_after_all = draft_time(draft_over(2), first, before_first);
    loop.later_draft = draft_time(draft, later, in_a_draft);
    loop.drafted = hardware.drafted_seconds + (target_stays ? 0 : hardware.cold_drafted_seconds * draft.weight_bytes);
    if (!target_stays) {
      const double driven_out = std::min(draft.weight_bytes * loop.drafting_ranks, score.weight_bytes * ranks);
      displaced = hardware.displaced_seconds * driven_out;
    }
  }
  loop.score = pass_time(hardware, score, ranks, target_stays ? WeightsIn::kCache : WeightsIn::kMemory,
                         hardware.share_in_own_cache(in_a_loop));
  loop.score.work += displaced;
  if (job.placement == Placement::kDedicated && k > 0) {
    loop.order = hardware.interconnect.broadcast(DraftLink::reply_bytes(k), 2);
  }
  if (ranks > 1 && !drafts_together(job.placement)) {
    loop.broadcast = hardware.interconnect.broadcast(RoundChannel::message_bytes(k), ranks);
  }
  if (ranks > 1) loop.gather = decision_gather(hardware.interconnect, job.target, job.whole_rows, k + 1, ranks);
  loop.rest = hardware.loop_seconds + (target_stays ? 0 : hardware.cold_loop_seconds);
  return loop;
}

namespace {

struct LoopCases {
  LoopTime mean;
  std::vector<LoopCase> cases;
};

LoopCases loop_cases(const Hardware& hardware, const PredictedJob& job, std::int64_t k, double alpha) {
  const LoopWork work = loop_work(hardware, job, k);
  const auto drafted = static_cast<double>(k);
  LoopCases out;
  out.mean = {.broadcast = work.broadcast,
              .score = work.score.total(),
              .rest = work.gather + work.rest + hardware.accepted_seconds * (tokens_per_loop(alpha, k) - 1)};
  if (k == 0) {
    out.cases = {{.seconds = out.mean.total()}};
    return out;
  }
  const double after_all = std::pow(alpha, drafted);
  const double later = (drafted - 1) * work.later_draft.total() + drafted * work.drafted;
  const double block = later + work.first_draft.total();
  if (job.placement != Placement::kDedicated) {
    const double longer = work.first_after_all.total() - work.first_draft.total();
    out.mean.draft = block + after_all * longer;
    const double others = out.mean.total() - after_all * longer;
    out.cases = {{.seconds = others, .share = 1 - after_all}, {.seconds = others + longer, .share = after_all}};
    return out;
  }
  const double hides = out.mean.total();
  const double ahead = block + work.later_draft.total() + work.drafted;
  const double hit = std::pow(alpha, drafted + 1);
  // What is drafted ahead begins an order later where rank 0 took what was there, and its tokens travel.
  const double after_hit = std::max(0.0, 2 * work.order + ahead - hides);
  const double after_miss = std::max(0.0, ahead - hides);
  const double again = 2 * work.order + block;
  const auto add = [&](double share, double draft) {
    out.mean.draft += share * draft;
    out.cases.push_back({.seconds = hides + draft, .share = share});
  };
  add(hit * hit, after_hit);
  add((1 - hit) * hit, after_miss);
  add(hit * (1 - hit), after_hit + again);
  add((1 - hit) * (1 - hit), after_miss + again);
  return out;
}

}  // namespace

LoopTime loop_time(const Hardware& hardware, const PredictedJob& job, std::int64_t k, double alpha) {
  return loop_cases(hardware, job, k, alpha).mean;
}

std::vector<Prediction> predict(const Hardware& hardware, const PredictedJob& job, double alpha,
                                std::span<const std::int64_t> ks) {
  PredictedJob without = job;
  if (job.placement == Placement::kDedicated) without.placement = Placement::kRank0;
  const double alone = loop_time(hardware, without, 0, alpha).total();
  std::vector<Prediction> predictions;
  for (const std::int64_t k : ks) {
    const LoopCases loop = loop_cases(hardware, job, k, alpha);
    Prediction of;
    of.k = k;
    of.loop = loop.mean;
    of.tokens_per_loop = tokens_per_loop(alpha, k);
    of.token = token_times(alpha, k, loop.cases);
    of.speedup = alone / of.token.mean;
    predictions.push_back(of);
  }
  return predictions;
}

std::int64_t best_k(std::span<const Prediction> predictions) {
  check(!predictions.empty(), "a best K among none");
  return std::ranges::min_element(predictions, {}, [](const Prediction& of) { return std::pair(of.token.mean, of.k); })
      ->k;
}

}  // namespace specdec
