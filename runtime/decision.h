#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/sampler.h"
#include "parallel/head.h"
#include "runtime/drafter.h"
#include "runtime/philox.h"
#include "runtime/round.h"
#include "runtime/rows_in_place.h"
#include "runtime/verifier.h"

namespace specdec {

/// What a round decided.
struct Verdict {
  std::int64_t accepted = 0;  ///< drafted tokens that stand
  std::int64_t reached = 0;   ///< drafted positions that were tried: min(K, accepted + 1)
  double beta_sum = 0;        ///< sum over the reached positions of min(1, p/q)
  Token next = 0;             ///< the token that was resampled or added; on rank 0 only
  bool decided = true;        ///< false on ranks that leave the decision to rank 0: nothing else here is set then
};

/// Turns the logits of a scored round into a verdict, letting as little travel as the sampling and the verifier allow
/// (docs/protocol.md, "Decision"):
///   greedy                      (max, argmax) per vocabulary slice;
///   temperature alone           (max, sum of exp) per slice and the drafted tokens' logits, then the one row that is resampled;
///   top-k, top-p, or a verifier that needs all rows: whole rows, to rank 0.
/// Where one rank has whole rows in memory that is not the host's, nothing travels but a record of each row (RowsInPlace).
/// Every rank of the target group calls decide() with its own shard of the logits. The acceptance uniforms are keyed, not sent,
/// so with temperature alone every rank knows by itself which row travels.
class Decision {
 public:
  Decision(ParallelHead& head, bool is_root, const SamplingParams& sampling, const Verifier& verifier,
           std::uint64_t seed);

  /// `logits` [1 + K, local vocabulary] of the rows of `round`, whose first row is at `position`. `draft` holds the distributions of the
  /// drafted tokens; only rank 0 has them, the others pass an empty block.
  /// An unread draft is read as soon as the host has waited for its own reasons.
  Verdict decide(ConstRows logits, const Round& round, std::int64_t position, DraftBlock& draft);

  /// Whether decide() takes a draft that is unread. Where it does not, nobody but the host could tell the other ranks, or whoever decides.
  bool takes_unread() const { return in_place_ != nullptr; }
  /// The tokens of such a draft to where a pass reads them.
  void bring(const UnreadDraft& draft, Token* tokens) { in_place_->bring(draft, tokens, Stream{}); }

 private:
  Verdict decide_by_rule(ConstRows logits, const Round& round, std::int64_t position, DraftBlock& draft);
  Verdict decide_greedy(ConstRows logits, const Round& round, DraftBlock& draft);
  Verdict decide_by_sums(ConstRows logits, const Round& round, std::int64_t position, const DraftBlock& draft);
  Verdict decide_by_rows(ConstRows logits, const Round& round, std::int64_t position, const DraftBlock& draft);
  Verdict decide_in_place(ConstRows logits, const Round& round, std::int64_t position, DraftBlock& draft);

  void read(DraftBlock& draft);

  /// Stage 1 on the entries known so far, those of the first entries_.size() drafted tokens; `q_rows` only for a verifier that needs
  /// all rows.
  std::int64_t accept(std::span<const float> q_rows = {}) const;
  /// The draft's distributions on the host as [K, vocabulary], point masses written out.
  std::span<const float> dense_rows(const DraftBlock& draft);
  /// The host can read `rows` where they are, side by side.
  bool lies_on_host(ConstRows rows) const;
  /// The draft's rows from the backend's memory, which for most backends is the host's.
  std::span<const float> on_host(ConstRows rows);
  /// On rank 0 the whole rows, side by side, from all ranks: where they lie already if one rank of the host has all.
  std::span<const float> whole_on_root(ConstRows logits);
  Verdict summarise(std::int64_t accepted, std::int64_t drafted) const;
  /// Stage 2, on rank 0: draws from the residual of the target's row `p`, or from `p` itself after full acceptance.
  Token draw_next(std::int64_t accepted, std::span<const float> p, const Round& round, std::int64_t position,
                  const DraftBlock& draft);
  /// Decides the token after `accepted` drafted ones.
  double next_uniform(const Round& round, std::int64_t position, std::int64_t accepted) const;
  void draw_uniforms(const Round& round, std::int64_t position);
  RandomKey key(const Round& round, std::int64_t position, Purpose purpose) const;

  ParallelHead& head_;
  bool is_root_;
  SamplingParams params_;
  Sampler sampler_;
  const Verifier& verifier_;
  std::uint64_t seed_;
  std::unique_ptr<RowsInPlace> in_place_;  ///< where rows are sampled in place

  std::vector<Token> tokens_;          ///< drafted
  std::vector<float> q_;               ///< [K] with which they were
  std::vector<double> uniforms_;       ///< [K]
  std::vector<DraftedEntry> entries_;  ///< of drafted tokens, in order, as far as known
  std::vector<Token> best_;            ///< [1 + K] argmax of each row
  std::vector<RowSum> sums_;           ///< [1 + K]
  std::vector<float> entry_z_;         ///< [K]
  std::vector<float> logit_rows_;      ///< rows on the host, [rows, vocabulary]
  std::vector<float> p_rows_;          ///< warped rows, [rows, vocabulary]
  std::vector<float> weights_;         ///< [vocabulary]
  std::vector<float> q_rows_;          ///< the draft's rows, where it did not leave them on the host, [K, vocabulary]
  std::vector<RowRecord> records_;     ///< [1 + K]
};

}  // namespace specdec
