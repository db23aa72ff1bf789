#include "runtime/adaptive_draft_length.h"

#include <algorithm>
#include <utility>

#include "backend/error.h"
#include "runtime/cost_model.h"
#include "runtime/hardware_load.h"
#include "runtime/theory.h"
#include "runtime/typical_hardware.h"

namespace specdec {
namespace {

constexpr std::int64_t kFirst = 4;
constexpr std::int64_t kLonger = 2;
constexpr std::int64_t kShorter = 1;

constexpr double kPriorReached = 2;
constexpr double kPriorAlpha = 0.7;
constexpr double kRemembered = 0.97;

}  // namespace

HeuristicDraftLength::HeuristicDraftLength(std::int64_t max) : max_(max), k_(std::min(max, kFirst)) {
  check(max >= 0, "the largest K is not negative");
}

void HeuristicDraftLength::observe(const RoundOutcome& outcome) {
  // A round that a limit cut to nothing says nothing.
  if (outcome.drafted == 0) return;
  const bool all = outcome.accepted == outcome.drafted;
  k_ = all ? std::min(max_, k_ + kLonger) : std::max(std::min<std::int64_t>(max_, 1), k_ - kShorter);
}

OptimalDraftLength::OptimalDraftLength(std::vector<double> loop_times) : loop_times_(std::move(loop_times)) {
  check(!loop_times_.empty() && std::ranges::all_of(loop_times_, [](double time) { return time > 0; }),
        "each K has the time of its loop");
}

double OptimalDraftLength::alpha() const {
  return (kPriorAlpha * kPriorReached + accepted_) / (kPriorReached + reached_);
}

std::int64_t OptimalDraftLength::next() {
  const double rate = alpha();
  std::int64_t best = 0;
  double most = 0;
  for (std::int64_t k = 0; k <= max(); ++k) {
    const double tokens_a_time = tokens_per_loop(rate, k) / loop_times_[static_cast<std::size_t>(k)];
    if (tokens_a_time > most) {
      most = tokens_a_time;
      best = k;
    }
  }
  return best;
}

void OptimalDraftLength::observe(const RoundOutcome& outcome) {
  reached_ = kRemembered * reached_ + static_cast<double>(outcome.reached);
  accepted_ = kRemembered * accepted_ + static_cast<double>(outcome.accepted);
}

std::vector<double> expected_loop_times(const RunConfig& config, const ModelConfig& target, const ModelConfig& draft,
                                        int ranks, Isa isa, const InterconnectChoice& interconnect) {
  const bool described = config.decode.hardware != kNoHardware;
  Hardware hardware = described ? load_hardware(config.decode.hardware, "decode.hardware")
                                : typical_hardware(config.backend, isa, ranks, config.parallel.threads.value_or(1),
                                                   config.decode.k + 1);
  if (ranks > hardware.ranks) {
    throw_bad_input(std::string("decode.hardware: found ") + hardware.name + " with " + std::to_string(hardware.ranks) +
                    " ranks, expected at least the " + std::to_string(ranks) + " of this job");
  }
  if (interconnect) hardware.interconnect = *interconnect;
  const PredictedJob job = {.target = target,
                            .draft = draft,
                            .target_dtype = config.dtype,
                            .draft_dtype = config.type_of_draft(),
                            .placement = config.placement,
                            .ranks = ranks,
                            .whole_rows = config.decode.sampling.truncates()};
  std::vector<double> times;
  for (std::int64_t k = 0; k <= config.decode.k; ++k) times.push_back(loop_time(hardware, job, k, kPriorAlpha).total());
  return times;
}

std::unique_ptr<DraftLength> make_draft_length(const RunConfig::Decode& decode, const std::vector<double>& loop_times) {
  switch (decode.draft_length) {
    case DraftLengthRule::kFixed:
      break;
    case DraftLengthRule::kHeuristic:
      return std::make_unique<HeuristicDraftLength>(decode.k);
    case DraftLengthRule::kOptimal:
      // Without a draft there is nothing to choose.
      if (!loop_times.empty()) return std::make_unique<OptimalDraftLength>(loop_times);
  }
  return std::make_unique<FixedDraftLength>(decode.k);
}

}  // namespace specdec
