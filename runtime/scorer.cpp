#include "runtime/scorer.h"

#include <algorithm>

#include "runtime/pass_moments.h"

namespace specdec {
namespace {

constexpr TraceKind kPrefill{.name = "prefill", .value = "tokens"};
constexpr TraceKind kCommit{.name = "commit", .value = "rows"};
constexpr TraceKind kScore{.name = "score", .value = "rows"};
constexpr TraceKind kDecide{.name = "decide", .value = "rows"};

}  // namespace

Scorer::Scorer(Transformer& target, const TimedCommunicator& group, Decision& decision,
               std::optional<std::uint64_t> configuration, Tracer* tracer)
    : target_(target),
      group_(group),
      decision_(decision),
      tracer_(tracer),
      cache_(target.make_cache()),
      agreement_(configuration),
      moments_(target.head().backend().make_moments(kPassMoments)) {}

void Scorer::begin(std::span<const Token> prompt) {
  const Span span(tracer_, kPrefill, static_cast<std::int64_t>(prompt.size()) - 1);
  cache_.clear();
  tokens_.clear();
  const std::span<const Token> cached = prompt.first(prompt.size() - 1);
  if (!cached.empty()) {
    target_.prefill(cached, cache_, Stream{});
  }
  agreement_.begin(cached);
}

Verdict Scorer::score(const Round& round, DraftBlock& draft) {
  agreement_.check_round(round);
  commit(round.kept);
  agreement_.check_cache(round, cache_.committed());
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
  const auto rows = static_cast<std::int64_t>(round.rows.size());
  TimedSpan score(tracer_, kScore);
  const ConstRows logits = pass(draft);
  double took = score.end(rows);
  TimedSpan decide(tracer_, kDecide);
  times_.all_reduce = group_.on_device() ? 0 : group_.totals().all_reduce.seconds - all_reduce_before;
  if (observer_) {
    observer_(position, logits);
  }
  const bool was_unread = draft.unread != nullptr;
  const Verdict verdict = decision_.decide(logits, round, position, draft);
  times_.decide = decide.end(rows);
  if (moments_ != nullptr) {
    // The host has enqueued the pass, and waited for it when it decided.
    const double both = took + times_.decide;
    took = moments_->between(kPassBegin, kPassEnd);
    times_.decide = both - took;
  }
  times_.compute = took - times_.all_reduce;
  if (was_unread) {
    std::ranges::copy(draft.tokens, tokens_.begin() + 1);
  }
  if (verdict.decided) {
    agreement_.expect_kept(verdict.accepted + 1);
  }
  return verdict;
}

ConstRows Scorer::pass(const DraftBlock& draft) {
  std::span<const Token> tokens = tokens_;
  if (draft.unread != nullptr) {
    target_.head().backend().upload(reinterpret_cast<std::byte*>(target_.tokens()), std::as_bytes(tokens.first(1)),
                                    Stream{});
    decision_.bring(*draft.unread, target_.tokens() + 1);
    tokens = {};
  }
  if (moments_ != nullptr) {
    moments_->mark(kPassBegin);
  }
  const ConstRows logits = target_.forward({tokens, position_, parent_}, cache_, LogitRows::kAll, Stream{});
  if (moments_ != nullptr) {
    moments_->mark(kPassEnd);
  }
  return logits;
}

void Scorer::commit(std::int64_t rows) {
  const Span span(tracer_, kCommit, rows);
  cache_.commit_prefix(rows);
  agreement_.commit(std::span(tokens_).first(static_cast<std::size_t>(rows)));
}

}  // namespace specdec
