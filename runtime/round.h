#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/config.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"
#include "runtime/fingerprint.h"

/// The one control message of a round (docs/protocol.md, "The round").
namespace specdec {

enum class RoundAction : std::int32_t {
  kBegin,  ///< a new sequence: its prompt follows in one broadcast of `count` tokens
  kScore,  ///< score rows: the last token that stands, then the drafted ones
  kEnd,    ///< the job is over
};

/// One row to score. `parent` is the row that it follows; -1 for the first.
struct RoundRow {
  Token token = 0;
  std::int32_t parent = -1;
  float q = 0;  ///< the draft's probability of this token; unused in row 0
};

struct Round {
  RoundAction action = RoundAction::kEnd;
  std::uint32_t sequence = 0;
  std::uint32_t number = 0;  ///< round within the sequence, from 0
  std::int32_t kept = 0;     ///< how many rows of the last pass stand; all ranks commit these first
  std::int32_t count = 0;    ///< kBegin: tokens of the prompt
  /// kBegin: which of the job's interconnects all messages take from now on (RunConfig::interconnects).
  std::int32_t interconnect = 0;
  /// All ranks draft: kBegin says so for the sequence; then the drafted rows of a kScore travel empty, and each rank fills them in (fill_rows).
  bool together = false;
  std::vector<RoundRow> rows;  ///< kScore: 1 + K of them
  Fingerprint fingerprint;     ///< what rank 0 holds; every rank compares (agreement.h)

  std::int64_t drafted() const { return static_cast<std::int64_t>(rows.size()) - 1; }
};

/// Of all that a round says, its fingerprint apart.
std::uint64_t hash_of(const Round& round);

/// Carries rounds from rank 0 to all others: one broadcast of a fixed size each, whatever K a round has.
class RoundChannel {
 public:
  /// `max_drafted`: the largest K of the job, equal on all ranks. Each exchange is noted in `progress`.
  RoundChannel(Communicator& control, Progress& progress, std::int64_t max_drafted);
  /// Of the message, where the largest K is `max_drafted`.
  static std::size_t message_bytes(std::int64_t max_drafted);

  /// On rank 0 completes `round` with its hash and sends it; on the others overwrites it with what rank 0 sent. Throws Disagreement when this rank filled in the round before
  /// otherwise than rank 0 did.
  void exchange(Round& round);
  /// This rank has filled in the drafted rows of `round` by itself.
  void filled(const Round& round) { filled_ = hash_of(round); }
  /// `begun` is called on every rank with every kBegin, once that was checked and before its prompt travels.
  void on_begin(std::function<void(const Round&)> begun) { begun_ = std::move(begun); }
  /// The prompt that follows `begin`; `tokens` has the announced size on every rank.
  void exchange_prompt(const Round& begin, std::span<Token> tokens);

  bool is_root() const { return control_.rank() == 0; }
  std::int64_t max_drafted() const { return max_drafted_; }

 private:
  Communicator& control_;
  Progress& progress_;
  std::int64_t max_drafted_;
  std::uint64_t exchanged_ = 0;
  std::uint64_t filled_ = 0;  ///< hash of the last round, if this rank filled it in; else 0
  std::vector<std::byte> wire_;
  std::function<void(const Round&)> begun_ = [](const Round&) {};
};

}  // namespace specdec
