#pragma once

#include <cstdint>

namespace specdec {

/// What a round showed, for the next choice of K. Only positions that were reached count: those up to the first rejection.
struct RoundOutcome {
  std::int64_t drafted = 0;
  std::int64_t reached = 0;  ///< min(drafted, accepted + 1)
  std::int64_t accepted = 0;
};

/// Decides how many tokens to draft in the next round. It must not look at the tokens that it is asked about: choosing after
/// looking is biased (docs/protocol.md).
class DraftLength {
 public:
  virtual ~DraftLength() = default;
  /// K for the next round; the caller cuts it to what the limit and the context leave.
  virtual std::int64_t next() = 0;
  virtual void observe(const RoundOutcome& outcome) = 0;
  /// Largest K that next() will ever return: sizes buffers and messages.
  virtual std::int64_t max() const = 0;
};

class FixedDraftLength final : public DraftLength {
 public:
  explicit FixedDraftLength(std::int64_t k) : k_(k) {}
  std::int64_t next() override { return k_; }
  void observe(const RoundOutcome&) override {}
  std::int64_t max() const override { return k_; }

 private:
  std::int64_t k_;
};

}  // namespace specdec
