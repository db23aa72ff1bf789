#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/row_sampler.h"
#include "models/transformer.h"
#include "runtime/drafter.h"
#include "runtime/philox.h"

namespace specdec {

/// A small autoregressive model as drafter, warped as the target is (Leviathan et al. 2023, section 2.2). It has one rank, or is cut over the target's, which then all propose. A drafted token is chosen where
/// the logits lie and the next pass reads it there, so that the host waits once for all K of them, or not at all before it
/// has waited for the target.
class ModelDrafter final : public Drafter, private UnreadDraft {
 public:
  /// In its trace, one pass over one row or two.
  static const TraceKind kPass;

  /// `level` keys its random numbers: 1 drafts for the target, 2 for that draft.
  /// `together`: see Drafter. A model that is cut over several ranks needs it.
  ModelDrafter(Transformer& model, const SamplingParams& sampling, std::uint64_t seed, std::uint8_t level = 1,
               Tracer* tracer = nullptr, bool together = false);

  void begin(std::uint32_t sequence, std::span<const Token> prompt) override;
  void propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) override;
  std::int64_t room(std::int64_t history_size) const override;
  /// Of a draft whose cache holds `capacity` tokens.
  static std::int64_t room(std::int64_t capacity, std::int64_t history_size);
  bool together() const override { return together_; }

  /// As propose(), after a history of which the first `standing` tokens are sure to stand and the others were proposed last, perhaps with one more behind them.
  void propose_ahead(std::uint32_t round, std::span<const Token> history, std::int64_t standing, std::int64_t k,
                     DraftBlock& block);
  /// As propose_ahead() of one token, with the random number with which the target would draw it in that round: where both have like distributions they draw like tokens.
  void guess(std::uint32_t round, std::span<const Token> history, std::int64_t standing, DraftBlock& block);

 private:
  void draft(const RandomKey& first, std::span<const Token> history, std::int64_t standing, std::int64_t k,
             DraftBlock& block);
  /// Keeps what the history confirms of the rows that were fed in earlier rounds, commits those of the `standing` tokens, and feeds the rest of it.
  ConstRows catch_up(std::span<const Token> history, std::int64_t standing);
  /// Feeds `count` tokens as a chain, or, without any, the one that was chosen last, and returns the last row's logits.
  ConstRows feed(std::span<const Token> tokens, std::int32_t count);
  /// The whole row, from all ranks where the head is cut.
  ConstRows whole(ConstRows logits);
  /// Chooses drafted token `index` from this rank's part of its logits, as its record asks.
  void choose(ConstRows part, std::int64_t index);
  /// Makes room for `k` drafted tokens and asks for them, the first one with `key`.
  void ask(RandomKey key, std::int64_t k);
  void mark(int moment);
  /// Leaves `k` tokens unread.
  void leave(std::int64_t k, DraftBlock& block);

  std::span<const RowRecord> records() const override;
  void wait() override;
  void read(DraftBlock& block) override;

  Transformer& model_;
  Backend& backend_;
  KvCache cache_;
  SamplingParams sampling_;
  std::unique_ptr<RowSampler> sampler_;
  std::uint64_t seed_;
  std::uint8_t level_;
  Tracer* tracer_;
  bool together_;
  std::uint32_t sequence_ = 0;
  std::vector<Token> pending_;  ///< tokens of the cache's pending rows
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> parent_;
  std::vector<RowRecord> records_;         ///< [K]
  std::unique_ptr<Buffer> asked_;          ///< the same in the backend's memory
  std::unique_ptr<Buffer> whole_;          ///< [1, vocabulary] there, where the head is cut
  std::unique_ptr<Buffer> distributions_;  ///< [K, vocabulary] there
  std::unique_ptr<Moments> moments_;       ///< PassMoment; null where propose() takes its own time
};

}  // namespace specdec
