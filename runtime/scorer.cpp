#include "runtime/scorer.h"

#include "runtime/clock.h"

namespace specdec {

Scorer::Scorer(Transformer& target, const TimedCommunicator& group, Decision& decision)
    : target_(target), group_(group), decision_(decision), cache_(target.make_cache()) {}

void Scorer::begin(std::span<const Token> prompt) {
  cache_.clear();
  if (prompt.size() > 1) {
    target_.prefill(prompt.first(prompt.size() - 1), cache_, Stream{});
  }
}

Verdict Scorer::score(const Round& round, const DraftBlock& draft) {
  cache_.commit_prefix(round.kept);
  const std::int64_t position = cache_.committed();
  tokens_.clear();
  position_.clear();
  parent_.clear();
  for (const RoundRow& row : round.rows) {
    tokens_.push_back(row.token);
    parent_.push_back(row.parent);
    position_.push_back(row.parent < 0 ? static_cast<std::int32_t>(position)
                                       : position_[static_cast<std::size_t>(row.parent)] + 1);
  }

  const double all_reduce_before = group_.totals().all_reduce.seconds;
  const double start = now_seconds();
  const ConstRows logits = target_.forward({tokens_, position_, parent_}, cache_, LogitRows::kAll, Stream{});
  const double scored = now_seconds();
  times_.all_reduce = group_.totals().all_reduce.seconds - all_reduce_before;
  times_.compute = scored - start - times_.all_reduce;
  if (observer_) {
    observer_(position, logits);
  }
  const Verdict verdict = decision_.decide(logits, round, position, draft);
  times_.decide = now_seconds() - scored;
  return verdict;
}

}  // namespace specdec
