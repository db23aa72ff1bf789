#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/isa.h"
#include "models/config.h"
#include "runtime/config.h"
#include "runtime/draft_length.h"

/// K that follows what rounds showed. Both rules choose from outcomes of earlier rounds alone, so decoding stays exact; and neither looks at a clock, so a run can be
/// repeated.
namespace specdec {

/// Longer after full acceptance, shorter after a rejection: K + 2 or K - 1, from 1 to max (the course report's rule; `heuristic` in Hugging Face's transformers).
class HeuristicDraftLength final : public DraftLength {
 public:
  /// `max` >= 0; begins with the smaller of max and 4.
  explicit HeuristicDraftLength(std::int64_t max);
  std::int64_t next() override { return k_; }
  void observe(const RoundOutcome& outcome) override;
  std::int64_t max() const override { return max_; }

 private:
  std::int64_t max_;
  std::int64_t k_;
};

/// The K with the most tokens a second, eq. 1 (Leviathan et al. 2023) at the running estimate of alpha over the time of a loop.
///
/// The estimate is accepted over reached positions, in which a round that is r rounds old weighs 0.97^r, begun with two positions at 0.7. What is forgotten is replaced
/// by that prior, so that a K of 0, under which nothing is observed, does not last.
class OptimalDraftLength final : public DraftLength {
 public:
  /// `loop_times`: of a loop of K drafted tokens, for K = 0 to max, in any unit; not empty.
  explicit OptimalDraftLength(std::vector<double> loop_times);
  std::int64_t next() override;
  void observe(const RoundOutcome& outcome) override;
  std::int64_t max() const override { return static_cast<std::int64_t>(loop_times_.size()) - 1; }
  double alpha() const;

 private:
  std::vector<double> loop_times_;
  double reached_ = 0;
  double accepted_ = 0;
};

/// Seconds of loops with K = 0 to decode.k, as the cost model has them under `interconnect`: for decode.hardware, or, where the config names none, for a machine of which nothing is known but what is
/// typical (typical_hardware.h). Natively that one's messages take no time, so only the ratios say something: more rows cost what they typically do with `isa`, and a drafted token the share
/// that the draft's weights are of the target's of one rank. Throws kBadInput for hardware that is not there.
std::vector<double> expected_loop_times(const RunConfig& config, const ModelConfig& target, const ModelConfig& draft,
                                        int ranks, Isa isa, const InterconnectChoice& interconnect);

/// As the config has it. A new one for each prompt, so that no prompt depends on the ones before it.
/// `loop_times`: expected_loop_times(), for `optimal` alone.
std::unique_ptr<DraftLength> make_draft_length(const RunConfig::Decode& decode, const std::vector<double>& loop_times);

}  // namespace specdec
