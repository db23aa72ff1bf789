#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "models/config.h"

namespace specdec {

/// What the acceptance rule of a verifier reads of the target's distributions; decides what travels (docs/protocol.md).
enum class VerifierNeeds : std::uint8_t {
  kDraftedEntries,  ///< p and q of the drafted tokens, then the one row that is resampled
  kAllRows,         ///< every row of p and q
};

/// Target's and draft's probability of one drafted token.
struct DraftedEntry {
  float p = 0;
  float q = 0;
};

/// Stage 1's input, for a chain of K drafted tokens.
struct DraftedBlock {
  std::span<const Token> tokens;          ///< [K]
  std::span<const DraftedEntry> entries;  ///< [K]
  /// For kAllRows only: distributions [K + 1 or K rows, vocabulary], row-major; else empty.
  std::span<const float> p_rows;
  std::span<const float> q_rows;
  std::int64_t vocabulary = 0;
};

/// Decides how many drafted tokens stand and what the next token is drawn from. A pure function of probabilities and
/// uniforms, so that it can be enumerated; it knows no model, rank or random generator.
class Verifier {
 public:
  virtual ~Verifier() = default;
  virtual VerifierNeeds needs() const = 0;
  /// Whether next_weights() is residual(p, q) (backend/sampler.h) whatever was accepted: then it can be computed where the rows lie.
  virtual bool resamples_residual() const { return false; }

  /// The probability with which a token of these entries stands when it is reached: its mean over reached positions is the measured acceptance rate.
  virtual double acceptance(const DraftedEntry& entry) const {
    return std::min(1.0, static_cast<double>(entry.p) / static_cast<double>(entry.q));
  }

  /// The rate at which the token after a block that stands in full is synthetic_next() (acceptance.h); nothing where the target alone says which.
  virtual std::optional<double> next_known() const { return std::nullopt; }

  /// Stage 1: the length of the prefix that stands. uniforms [K] in [0, 1), one per drafted token.
  virtual std::int64_t accept(const DraftedBlock& block, std::span<const double> uniforms) const = 0;

  /// Stage 2: unnormalised weights of the distribution that the next token is drawn from. `accepted` is stage 1's
  /// result. p: the target's row after the last token that stands; q: the draft's distribution at that place, empty
  /// when all K tokens stand (bonus token). out [vocabulary]; may be p itself.
  virtual void next_weights(std::int64_t accepted, std::span<const float> p, std::span<const float> q,
                            std::span<float> out) const = 0;
};

/// Token by token (Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2): x_i stands with probability
/// min(1, p_i(x_i) / q_i(x_i)) while all before it stand; after a rejection the next token comes from norm(max(0, p -
/// q)). A deterministic draft is the point mass q(x) = 1.
class TokenVerifier final : public Verifier {
 public:
  VerifierNeeds needs() const override { return VerifierNeeds::kDraftedEntries; }
  bool resamples_residual() const override { return true; }
  std::int64_t accept(const DraftedBlock& block, std::span<const double> uniforms) const override;
  void next_weights(std::int64_t accepted, std::span<const float> p, std::span<const float> q,
                    std::span<float> out) const override;
};

}  // namespace specdec
