#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/philox.h"
#include "runtime/verifier.h"

namespace specdec {

/// What decides whether a drafted token stands.
struct AcceptanceChoice {
  bool synthetic = false;  ///< a stated rate, and not what the models say
  double alpha = 0.8;      ///< of synthetic acceptance
};

/// The label of everything that was done under synthetic acceptance, "acceptance: synthetic (alpha 0.8)"; empty where the models decide.
std::string label_of(const AcceptanceChoice& choice);

/// The token that follows, at the stated rate, a block which stood in full: one that a draft on a rank of its own can know beforehand (dedicated_draft.h), since
/// what random models say nobody can guess. `key`: seed, sequence, round, and the position of that token.
Token synthetic_next(RandomKey key, std::int64_t vocabulary);

/// Each drafted token stands with probability alpha, independently of the others and of the models, so that loops yield what Leviathan et al. 2023, eq. 1, says of
/// that rate and a cluster can be timed before there are models. All that a round does is done as TokenVerifier would have it, so the time is that of real
/// decoding; the text is not distributed as the target's.
class SyntheticVerifier final : public Verifier {
 public:
  /// `alpha` in [0, 1].
  explicit SyntheticVerifier(double alpha);
  VerifierNeeds needs() const override { return rule_.needs(); }
  bool resamples_residual() const override { return rule_.resamples_residual(); }
  double acceptance(const DraftedEntry& /*entry*/) const override { return alpha_; }
  std::optional<double> next_known() const override { return alpha_; }
  std::int64_t accept(const DraftedBlock& block, std::span<const double> uniforms) const override;
  void next_weights(std::int64_t accepted, std::span<const float> p, std::span<const float> q,
                    std::span<float> out) const override;

 private:
  double alpha_;
  TokenVerifier rule_;
};

std::unique_ptr<Verifier> make_verifier(const AcceptanceChoice& choice);

}  // namespace specdec
