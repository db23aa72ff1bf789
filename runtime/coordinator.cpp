#include "runtime/coordinator.h"

#include <algorithm>
#include <utility>

#include "backend/error.h"
#include "runtime/clock.h"
#include "runtime/text_stream.h"

namespace specdec {
namespace {

constexpr TraceKind kPrompt{.name = "prompt", .value = "sequence", .numbered = true};
constexpr TraceKind kRound{.name = "round", .value = "round", .numbered = true};
constexpr TraceKind kDraft{.name = "draft", .value = "tokens"};
constexpr TraceKind kSend{.name = "broadcast", .value = "tokens"};
constexpr TraceKind kReceive{.name = "wait for round"};
constexpr TraceKind kEmit{.name = "emit", .value = "tokens"};
constexpr TraceKind kAccepted{.name = "accepted", .value = "tokens", .lane = TraceLane::kCounter};
constexpr TraceKind kTokens{.name = "tokens", .value = "emitted", .lane = TraceLane::kCounter};

}  // namespace

namespace {

/// Row 0 and the drafted ones of a round.
void fill_rows(const DraftBlock& block, Round& round) {
  round.rows.resize(1);
  for (std::size_t i = 0; i < block.tokens.size(); ++i) {
    round.rows.push_back({.token = block.tokens[i], .parent = block.parent[i] + 1, .q = block.q[i]});
  }
}

/// Drafts as many tokens as `round` has empty rows, as every rank does, and fills them in. What is checked from now on is what this rank has.
void draft_together(Drafter& drafter, RoundChannel& channel, std::span<const Token> history, Round& round,
                    DraftBlock& block) {
  drafter.propose(round.number, history, round.drafted(), block);
  if (block.unread != nullptr) {
    block.unread->wait();
    block.unread->read(block);
  }
  fill_rows(block, round);
  round.fingerprint.message = hash_of(round);
  channel.filled(round);
}

}  // namespace

Coordinator::Coordinator(Scorer& scorer, RoundChannel& channel, Drafter* drafter, DraftLength& draft_length,
                         const Tokenizer* tokenizer, EndRules rules, std::function<bool()> interrupted, Tracer* tracer)
    : scorer_(scorer),
      channel_(channel),
      drafter_(drafter),
      draft_length_(draft_length),
      tokenizer_(tokenizer),
      rules_(std::move(rules)),
      interrupted_(std::move(interrupted)),
      tracer_(tracer) {}

/// One prompt on its way.
class Coordinator::Sequence {
 public:
  Sequence(Coordinator& owner, std::uint32_t sequence, std::span<const Token> prompt_ids, std::int32_t interconnect)
      : owner_(owner), sequence_(sequence), interconnect_(interconnect), text_(owner.tokenizer_, owner.rules_.stop) {
    history_.assign(prompt_ids.begin(), prompt_ids.end());
    const std::int64_t room = owner.scorer_.context() - static_cast<std::int64_t>(history_.size());
    check(!history_.empty() && room > 0, "Coordinator: prompt empty or as long as the context");
    remaining_ = std::min(owner.rules_.max_new_tokens, room);
    limit_reason_ = owner.rules_.max_new_tokens <= room ? "length" : "context";
    // Rounds allocate nothing (tests/allocation), but for a text of uncommonly many bytes.
    constexpr std::int64_t kBytesPerToken = 16;
    history_.reserve(history_.size() + static_cast<std::size_t>(remaining_));
    round_text_.reserve(static_cast<std::size_t>((owner.draft_length_.max() + 1) * kBytesPerToken));
  }

  /// Returns why it ended.
  const std::string& run(OutputSink& sink) {
    const double start = now_seconds();
    begin();
    sink.prefilled(now_seconds() - start);
    while (finish_reason_.empty()) {
      if (remaining_ == 0) {
        finish_reason_ = limit_reason_;
      } else if (owner_.interrupted_()) {
        finish_reason_ = "interrupted";
      } else {
        run_round(sink);
      }
    }
    sink.finish_output(finish_reason_, text_.finish());
    return finish_reason_;
  }

 private:
  void begin() {
    Round& round = owner_.round_;
    round.action = RoundAction::kBegin;
    round.sequence = sequence_;
    round.number = 0;
    round.kept = 0;
    round.count = static_cast<std::int32_t>(history_.size());
    round.interconnect = interconnect_;
    round.together = owner_.drafter_ != nullptr && owner_.drafter_->together();
    round.rows.clear();
    round.fingerprint.configuration = owner_.scorer_.agreement().configuration();
    owner_.channel_.exchange(round);
    owner_.channel_.exchange_prompt(round, history_);
    // A draft on a rank of its own works at the prompt while the target does.
    if (owner_.drafter_ != nullptr) {
      owner_.drafter_->begin(sequence_, history_);
    }
    owner_.scorer_.begin(history_);
    round.action = RoundAction::kScore;
  }

  /// K of the next round, and whether limits made it smaller than it would have been.
  std::pair<std::int64_t, bool> choose_k() {
    if (owner_.drafter_ == nullptr) {
      return {0, false};
    }
    const std::int64_t wanted = owner_.draft_length_.next();
    // A round emits one token more than it drafts, so nothing is ever drafted past the limit.
    const std::int64_t k =
        std::min({wanted, remaining_ - 1, owner_.drafter_->room(static_cast<std::int64_t>(history_.size()))});
    return {k, k < wanted};
  }

  void run_round(OutputSink& sink) {
    LoopRecord loop;
    TimedSpan whole(owner_.tracer_, kRound);
    const auto [k, limited] = choose_k();
    DraftBlock& block = owner_.block_;
    block.clear();
    // Where all draft, they are told first, and draft then.
    if (owner_.round_.together) loop.broadcast = send_round(block, k);
    TimedSpan draft(owner_.tracer_, kDraft);
    if (k > 0 && owner_.round_.together) {
      draft_together(*owner_.drafter_, owner_.channel_, history_, owner_.round_, block);
    } else if (k > 0) {
      owner_.drafter_->propose(owner_.round_.number, history_, k, block);
      if (block.unread != nullptr && !owner_.scorer_.takes_unread()) {
        block.unread->wait();
        block.unread->read(block);
      }
    }
    loop.draft = draft.end(k);
    if (!owner_.round_.together) loop.broadcast = send_round(block, k);
    const bool was_unread = block.unread != nullptr;
    const Verdict verdict = owner_.scorer_.score(owner_.round_, block);

    loop.score_compute = owner_.scorer_.last_times().compute;
    loop.score_all_reduce = owner_.scorer_.last_times().all_reduce;
    loop.decide = owner_.scorer_.last_times().decide;
    if (was_unread) {
      // What the host had only enqueued when the draft's span ended was waited for in the decision.
      loop.decide -= block.seconds - loop.draft;
      loop.draft = block.seconds;
    }
    loop.drafted = k;
    loop.ahead = block.ahead;
    loop.reached = verdict.reached;
    loop.accepted = verdict.accepted;
    loop.beta_sum = verdict.beta_sum;
    TimedSpan emit(owner_.tracer_, kEmit);
    accept(verdict, block, loop);
    emit.end(loop.emitted);
    loop.cut = limited || loop.emitted < verdict.accepted + 1;
    loop.total = whole.end(owner_.round_.number);
    count(owner_.tracer_, kAccepted, verdict.accepted);
    count(owner_.tracer_, kTokens, emitted_ += loop.emitted);

    owner_.draft_length_.observe({.drafted = k, .reached = verdict.reached, .accepted = verdict.accepted});
    sink.append(std::span(history_).last(static_cast<std::size_t>(loop.emitted)), round_text_, loop);
    owner_.round_.kept = static_cast<std::int32_t>(verdict.accepted + 1);
    ++owner_.round_.number;
  }

  /// Of `k` drafted tokens, those of `block` or, while it is empty, rows for them to come. Returns the seconds that it took.
  double send_round(const DraftBlock& block, std::int64_t k) {
    TimedSpan send(owner_.tracer_, kSend);
    std::vector<RoundRow>& rows = owner_.round_.rows;
    rows.assign(1, {.token = history_.back(), .parent = -1, .q = 0});
    if (block.size() > 0) {
      fill_rows(block, owner_.round_);
    } else {
      rows.resize(static_cast<std::size_t>(1 + k), {.token = DraftBlock::kUnread, .parent = -1, .q = 0});
    }
    // All that stands is in the caches, but for the last token, which is row 0.
    for (; cached_ + 1 < history_.size(); ++cached_) {
      cached_hash_.add(static_cast<std::uint64_t>(history_[cached_]));
    }
    owner_.round_.fingerprint.history = cached_hash_.value();
    owner_.round_.fingerprint.cached = static_cast<std::int64_t>(cached_);
    owner_.channel_.exchange(owner_.round_);
    return send.end(k);
  }

  /// Takes the tokens that stand, one by one, until one of them ends the text.
  void accept(const Verdict& verdict, const DraftBlock& block, LoopRecord& loop) {
    round_text_.clear();
    for (std::int64_t i = 0; i <= verdict.accepted && finish_reason_.empty(); ++i) {
      const Token token = i < verdict.accepted ? block.tokens[static_cast<std::size_t>(i)] : verdict.next;
      history_.push_back(token);
      ++loop.emitted;
      --remaining_;
      if (std::ranges::find(owner_.rules_.eos, token) != owner_.rules_.eos.end()) {
        finish_reason_ = "eos";
        break;
      }
      round_text_ += text_.push(token);
      if (text_.stopped()) {
        finish_reason_ = "stop";
      }
    }
  }

  Coordinator& owner_;
  std::uint32_t sequence_;
  std::int32_t interconnect_;
  TextStream text_;
  std::vector<Token> history_;  ///< prompt and all tokens that stand
  RunningHash cached_hash_;     ///< of the first cached_ tokens of history_
  std::size_t cached_ = 0;
  std::string round_text_;
  std::int64_t remaining_ = 0;  ///< tokens that may still come
  std::int64_t emitted_ = 0;    ///< tokens that came
  std::string limit_reason_;
  std::string finish_reason_;
};

bool Coordinator::generate(std::uint32_t sequence, const std::string& prompt, std::span<const Token> prompt_ids,
                           OutputSink& sink, std::int32_t interconnect) {
  const Span span(tracer_, kPrompt, sequence);
  sink.begin_output(prompt, prompt_ids);
  return Sequence(*this, sequence, prompt_ids, interconnect).run(sink) != "interrupted";
}

void end_job(RoundChannel& channel) {
  Round round;
  round.action = RoundAction::kEnd;
  channel.exchange(round);
}

void run_worker(Scorer& scorer, RoundChannel& channel, Tracer* tracer, Drafter* drafter) {
  Round round;
  DraftBlock block;
  std::vector<Token> history;    // prompt and all tokens that stand, where this rank drafts
  std::vector<Token> last_rows;  // of the round before
  while (true) {
    TimedSpan whole(tracer, kRound);
    TimedSpan receive(tracer, kReceive);
    channel.exchange(round);
    receive.end();
    if (round.action != RoundAction::kScore || round.together) {  // a scorer checks by itself what it scores
      scorer.agreement().check_round(round);
    }
    check(!round.together || drafter != nullptr, "run_worker: told to draft without a draft");
    switch (round.action) {
      case RoundAction::kBegin:
        history.resize(static_cast<std::size_t>(round.count));
        channel.exchange_prompt(round, history);
        if (round.together) {
          drafter->begin(round.sequence, history);
          last_rows.assign(1, history.back());
        }
        scorer.begin(history);
        break;
      case RoundAction::kScore:
        block.clear();
        if (round.together) {
          // Row 0 of the round before is in the history; then come the drafted tokens that stand, and row 0 of this round.
          if (round.kept > 0) {
            history.insert(history.end(), last_rows.begin() + 1, last_rows.begin() + round.kept);
            history.push_back(round.rows.front().token);
          }
          if (round.drafted() > 0) {
            TimedSpan draft(tracer, kDraft);
            draft_together(*drafter, channel, history, round, block);
            draft.end(round.drafted());
          }
          last_rows.clear();
          for (const RoundRow& row : round.rows) last_rows.push_back(row.token);
        }
        scorer.score(round, block);
        whole.end(round.number);
        break;
      case RoundAction::kEnd:
        return;
    }
  }
}

}  // namespace specdec
