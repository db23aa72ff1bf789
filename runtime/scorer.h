#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/transformer.h"
#include "parallel/timed_communicator.h"
#include "runtime/agreement.h"
#include "runtime/decision.h"
#include "runtime/round.h"

namespace specdec {

/// Where a round's time went on this rank, in seconds.
struct ScoreTimes {
  double compute = 0;  ///< the pass less its all-reduces
  /// Inside the pass's all-reduces, waiting for other ranks included; 0 where they are enqueued between its operations, which they are part of then.
  double all_reduce = 0;
  double decide = 0;
};

/// What every rank of the target group does in a round: commit what stands, make sure that it agrees with rank 0, score the new rows
/// in one pass, decide.
class Scorer {
 public:
  /// Sees the logits of every pass: the position of the first row, and the rows [rows, local vocabulary].
  using Observer = std::function<void(std::int64_t position, ConstRows logits)>;

  /// `group` is the communicator that `target` was made with; `configuration`: see Agreement.
  Scorer(Transformer& target, const TimedCommunicator& group, Decision& decision,
         std::optional<std::uint64_t> configuration = {}, Tracer* tracer = nullptr);

  /// A new sequence: all of the prompt but its last token goes into the cache; the last one is row 0 of the first round.
  void begin(std::span<const Token> prompt);
  /// Throws Disagreement before anything is scored.
  /// `draft`: see Decision::decide().
  Verdict score(const Round& round, DraftBlock& draft);
  /// Whether the draft may be unread.
  bool takes_unread() const { return decision_.takes_unread(); }

  const Agreement& agreement() const { return agreement_; }

  const ScoreTimes& last_times() const { return times_; }
  std::int64_t context() const { return cache_.capacity(); }
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  void commit(std::int64_t rows);
  ConstRows pass(const DraftBlock& draft);

  Transformer& target_;
  const TimedCommunicator& group_;
  Decision& decision_;
  Tracer* tracer_;
  KvCache cache_;
  Agreement agreement_;
  Observer observer_;
  ScoreTimes times_;
  std::unique_ptr<Moments> moments_;  ///< PassMoment; null where a pass is done when its call returns
  std::vector<Token> tokens_;         ///< of the last pass
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> parent_;
};

}  // namespace specdec
