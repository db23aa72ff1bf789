#include "runtime/cost_model.h"

#include <algorithm>

#include "backend/error.h"
#include "runtime/round.h"
#include "runtime/theory.h"

namespace specdec {
namespace {

PassWork work_on(const Hardware& hardware, const ModelConfig& model, DType dtype, std::int64_t rows,
                 std::int64_t context, int ranks) {
  return work_of(model, {.rows = rows,
                         .context = context,
                         .ranks = ranks,
                         .weights = dtype,
                         .cache_bytes = hardware.cache_bytes,
                         .payload_bytes = hardware.payload_bytes});
}

}  // namespace

std::string_view name_of(Placement placement) {
  switch (placement) {
    case Placement::kRank0:
      return "rank0";
    case Placement::kReplicated:
      return "replicated";
    case Placement::kSharded:
      return "sharded";
  }
  return "?";
}

double pass_seconds(const Hardware& hardware, const PassWork& work, int ranks, bool cached) {
  const double reading = hardware.reading_seconds(work.weight_bytes, work.cache_bytes, work.rows, ranks, cached);
  const double computing = hardware.operations_rate > 0 ? work.operations / hardware.operations_rate : 0;
  // A draft on one rank needs no interconnect, and 0 times what an empty one says is no number.
  const double meeting = work.all_reduces == 0 ? 0
                                               : static_cast<double>(work.all_reduces) *
                                                     hardware.interconnect.all_reduce(work.payload_bytes, ranks);
  return std::max(reading, computing) + static_cast<double>(work.layers) * hardware.layer_seconds + meeting +
         hardware.pass_seconds;
}

LoopTime loop_time(const Hardware& hardware, const PredictedJob& job, std::int64_t k) {
  check(k >= 0, "K is not negative");
  const auto drafted = static_cast<double>(k);
  LoopTime loop;
  const PassWork score = work_on(hardware, job.target, job.target_dtype, k + 1, job.context, job.ranks);
  const bool target_stays = hardware.keeps(score.weight_bytes * job.ranks);
  if (k > 0) {
    const bool sharded = job.placement == Placement::kSharded;
    const PassWork work = work_on(hardware, job.draft, job.draft_dtype, 1, job.context, sharded ? job.ranks : 1);
    const int reading = job.placement == Placement::kRank0 ? 1 : job.ranks;
    // The target's pass leaves nothing of the draft in a cache that does not hold the target too.
    const bool draft_stays = hardware.keeps(work.weight_bytes * reading);
    loop.draft = pass_seconds(hardware, work, reading, draft_stays && target_stays) +
                 (drafted - 1) * pass_seconds(hardware, work, reading, draft_stays) +
                 drafted * hardware.drafted_seconds;
  }
  if (job.ranks > 1 && job.placement == Placement::kRank0) {
    loop.broadcast = hardware.interconnect.broadcast(RoundChannel::message_bytes(k), job.ranks);
  }
  loop.score = pass_seconds(hardware, score, job.ranks, target_stays);
  loop.rest = hardware.loop_seconds;
  return loop;
}

std::vector<Prediction> predict(const Hardware& hardware, const PredictedJob& job, double alpha,
                                std::span<const std::int64_t> ks) {
  const double alone = loop_time(hardware, job, 0).total();
  std::vector<Prediction> predictions;
  for (const std::int64_t k : ks) {
    Prediction of;
    of.k = k;
    of.loop = loop_time(hardware, job, k);
    of.tokens_per_loop = tokens_per_loop(alpha, k);
    of.token = token_times(alpha, k, of.loop.total());
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
