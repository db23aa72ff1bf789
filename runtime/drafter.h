#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/tensor.h"
#include "models/config.h"

namespace specdec {

/// What a drafter proposes: row i follows row parent[i], or the last token that stands when parent[i] is -1. A chain for now.
struct DraftBlock {
  std::vector<Token> tokens;         ///< [K]
  std::vector<std::int32_t> parent;  ///< [K]
  std::vector<float> q;              ///< [K] probability with which each token was drawn; 1 for a deterministic draft
  /// The distributions that the tokens were drawn from, [K, vocabulary], side by side in the memory of the backend that the target's head has; they stay
  /// until the drafter's next propose(). No rows when the draft is deterministic: then each is a point mass on its token.
  ConstRows q_rows;

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
  virtual void propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) = 0;
  /// The largest k that propose() can be asked for after `history_size` tokens; 0 when its own context is full.
  virtual std::int64_t room(std::int64_t history_size) const = 0;
};

}  // namespace specdec
