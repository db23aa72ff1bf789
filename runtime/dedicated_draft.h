#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/tracer.h"
#include "runtime/acceptance.h"
#include "runtime/draft_link.h"
#include "runtime/model_drafter.h"

/// A draft on a rank of its own, which drafts the next block while the target scores this one. It guesses that all of this one will stand and which token the target will
/// add; what was drafted on a wrong guess is dropped. Each block is what would have been drafted after the history as it turned out, with the random numbers of its round,
/// so the text is that of a draft which waits.
namespace specdec {

/// The rank that drafts, as rank 0 sees it.
class DedicatedDrafter final : public Drafter {
 public:
  /// `context`: tokens that the draft's cache holds.
  DedicatedDrafter(DraftLink& link, std::int64_t context);

  /// Of the job's interconnects, for the sequences that begin from now on.
  void use(std::int32_t interconnect) { interconnect_ = interconnect; }

  void begin(std::uint32_t sequence, std::span<const Token> prompt) override;
  void propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) override;
  std::int64_t room(std::int64_t history_size) const override;
  /// Lets serve_drafts() return.
  void end();

 private:
  /// What was drafted ahead and is on its way, if anything is.
  void receive_ahead();
  void order(DraftAction action, std::span<const Token> tokens);

  DraftLink& link_;
  std::int64_t context_;
  std::int32_t interconnect_ = 0;
  DraftOrder order_;
  DraftReply reply_;
  ConstRows q_rows_;
  bool expects_ahead_ = false;
  std::uint32_t round_ = 0;      ///< of the block before
  std::int64_t told_ = 0;        ///< tokens of the history that the other rank was told
  std::vector<Token> expected_;  ///< what comes after them if the guess is right
};

/// How many tokens are drafted ahead of a round that comes after one of `k`, where the draft has room for `room`: as many as the round may ask for when all of those stand and K
/// grows by as much as rules let it.
std::int64_t drafted_ahead(std::int64_t k, std::int64_t max_drafted, std::int64_t room);

/// On the rank that drafts: does what rank 0 says until it is told that the job is over. `seed`, `acceptance`: the job's, for the guess.
void serve_drafts(DraftLink& link, ModelDrafter& draft, const AcceptanceChoice& acceptance, std::uint64_t seed,
                  std::int64_t vocabulary, Tracer* tracer = nullptr);

}  // namespace specdec
