#include "runtime/study_guess.h"

#include <algorithm>

#include "runtime/config_prompts.h"
#include "runtime/cost_model.h"
#include "runtime/predicted_job.h"
#include "runtime/theory.h"
#include "runtime/typical_hardware.h"

namespace specdec {
namespace {

constexpr double kStart = 0.5;           // of a program under mpirun
constexpr double kPreparedRate = 1.5e9;  // bytes of weights a second, read and packed or made up
constexpr double kWarmUpTokens = 8;
constexpr double kRowsOfPrefill = 16;
constexpr double kTimedPasses = 1500;  // of each number of ranks, and what lies between them (pass_times.cpp)
constexpr double kAllReduces = 2;
constexpr double kUsualAlpha = 0.7;

Hardware machine(const StudyPoint& point, int cores) {
  const RunConfig& config = point.config;
  const int threads = config.parallel.threads.value_or(std::max(cores / point.ranks, 1));
  Hardware hardware = typical_hardware(config.backend, detect_isa(), point.ranks, threads, config.decode.k + 1);
  // Cores of one host share its memory; ranks that share a core take turns.
  constexpr double kTogether = 0.8;
  const int at_once = std::min(point.ranks * threads, cores);
  hardware.node_read_rate = hardware.memory.rate / threads * (at_once > 1 ? kTogether * at_once : 1);
  hardware.ranks_per_node = point.ranks;
  if (config.interconnects.front()) hardware.interconnect = *config.interconnects.front();
  return hardware;
}

}  // namespace

double guessed_seconds(const Study& study, const StudyPoint& point, int cores) {
  if (times_all_reduces(point)) return kAllReduces;
  const RunConfig& config = point.config;
  PredictedJob job = predicted_job(config, point.ranks);
  if (point.k == 0) job.placement = Placement::kRank0;
  const Hardware hardware = machine(point, cores);
  const double bytes = work_of(job.target, {.weights = config.dtype}).weight_bytes;
  const double prepared = kStart + bytes / kPreparedRate;
  const double pass = loop_time(hardware, job, 0, kUsualAlpha).total();
  if (point.kind == PointKind::kPasses) {
    return prepared + kTimedPasses * pass * static_cast<double>(study.ranks.size());
  }
  const bool adapts = config.decode.draft_length != DraftLengthRule::kFixed;
  const std::int64_t k = adapts ? config.decode.k / 2 : point.k;
  const double alpha = config.acceptance.synthetic ? config.acceptance.alpha : kUsualAlpha;
  const double of_token = loop_time(hardware, job, k, alpha).total() / tokens_per_loop(alpha, k);
  double seconds = prepared;
  for (const Prompt& prompt : config.prompts) {
    seconds += pass * static_cast<double>(rough_tokens(prompt)) / kRowsOfPrefill;
    seconds += of_token * static_cast<double>(config.decode.max_new_tokens);
  }
  return seconds + of_token * kWarmUpTokens;
}

}  // namespace specdec
