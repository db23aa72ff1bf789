#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/row_sampler.h"
#include "backend/tensor.h"
#include "models/config.h"

namespace specdec {

struct DraftBlock;

/// Tokens that were drafted where the host has not read them yet: in the memory of the backend that the target's head has too. Whoever scores them there can do
/// so without a wait in between.
class UnreadDraft {
 public:
  /// What was drawn, [K].
  virtual std::span<const RowRecord> records() const = 0;
  /// Until read() may be called; it also may when the host has waited for the backend for another reason.
  virtual void wait() = 0;
  /// Completes the block. Throws kBadInput when the draft's logits could not be sampled.
  virtual void read(DraftBlock& block) = 0;

 protected:
  ~UnreadDraft() = default;
};

/// What a drafter proposes: row i follows row parent[i], or the last token that stands when parent[i] is -1. A chain for now.
struct DraftBlock {
  std::vector<Token> tokens;         ///< [K]
  std::vector<std::int32_t> parent;  ///< [K]
  std::vector<float> q;              ///< [K] probability with which each token was drawn; 1 for a deterministic draft
  /// The distributions that the tokens were drawn from, [K, vocabulary], side by side in the memory of the backend that the target's head has; they stay
  /// until the drafter's next propose(). No rows when the draft is deterministic: then each is a point mass on its token.
  ConstRows q_rows;
  /// Not null: of the tokens only their number is known, and that they are a chain; tokens are kUnread and q is 0.
  UnreadDraft* unread = nullptr;
  bool ahead = false;  ///< it was drafted while the target scored the block before
  double seconds = 0;  ///< that the backend took for a block that was left unread, once it was read

  static constexpr Token kUnread = -1;
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  void clear();
};

/// Proposes tokens, on every rank of its draft group. It is told the whole history every time and finds out by itself what of
/// its own state still stands, so that nothing needs to tell it about acceptance.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// A new sequence. What can be done before the first round is done here, so that its cost counts as prefill.
  virtual void begin(std::uint32_t sequence, std::span<const Token> prompt) = 0;
  /// Drafts `k` tokens after `history` (prompt and all tokens that stand). Its random numbers are keyed by the round and position.
  /// The block may be left unread.
  virtual void propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) = 0;
  /// The largest k that propose() can be asked for after `history_size` tokens; 0 when its own context is full.
  virtual std::int64_t room(std::int64_t history_size) const = 0;
  /// Whether every rank of the target group has one and proposes in step with the others, all the same tokens.
  virtual bool together() const { return false; }
};

}  // namespace specdec
