#include "runtime/dedicated_draft.h"

#include <algorithm>

#include "backend/error.h"
#include "parallel/disagreement.h"

namespace specdec {
namespace {

constexpr TraceKind kOrder{.name = "wait for order"};
constexpr TraceKind kDraftOrdered{.name = "draft", .value = "tokens"};
constexpr TraceKind kDraftAhead{.name = "draft ahead", .value = "tokens"};
constexpr TraceKind kSendDraft{.name = "send draft", .value = "tokens"};

/// The most by which a K that adapts grows after a round that stood in full; one that jumps further is drafted anew.
constexpr std::int64_t kGrowth = 2;

}  // namespace

std::int64_t drafted_ahead(std::int64_t k, std::int64_t max_drafted, std::int64_t room) {
  return std::clamp<std::int64_t>(room, 0, std::min(max_drafted, k + kGrowth));
}

DedicatedDrafter::DedicatedDrafter(DraftLink& link, std::int64_t context) : link_(link), context_(context) {}

std::int64_t DedicatedDrafter::room(std::int64_t history_size) const {
  return ModelDrafter::room(context_, history_size);
}

void DedicatedDrafter::order(DraftAction action, std::span<const Token> tokens) {
  order_.action = action;
  order_.tokens.assign(tokens.begin(), tokens.end());
  link_.exchange(order_);
}

void DedicatedDrafter::receive_ahead() {
  if (!expects_ahead_) return;
  expects_ahead_ = false;
  q_rows_ = link_.receive(reply_);
  expected_.push_back(reply_.guess);
}

void DedicatedDrafter::begin(std::uint32_t sequence, std::span<const Token> prompt) {
  receive_ahead();
  order_.sequence = sequence;
  order_.count = static_cast<std::int32_t>(prompt.size());
  order_.interconnect = interconnect_;
  order(DraftAction::kBegin, {});
  expected_.assign(prompt.begin(), prompt.end());
  link_.exchange_prompt(expected_);
  told_ = std::ssize(prompt);
}

void DedicatedDrafter::propose(std::uint32_t round, std::span<const Token> history, std::int64_t k, DraftBlock& block) {
  block.clear();
  if (k == 0) return;
  const bool has_ahead = expects_ahead_;
  receive_ahead();
  std::span<const Token> news = history.subspan(static_cast<std::size_t>(told_));
  order_.ahead =
      has_ahead && round == round_ + 1 && std::ranges::equal(news, expected_) && k <= std::ssize(reply_.tokens);
  order_.round = round;
  order_.k = static_cast<std::int32_t>(k);
  const auto most = static_cast<std::size_t>(link_.max_drafted() + 1);
  for (; news.size() > most; news = news.subspan(most)) order(DraftAction::kExtend, news.first(most));
  order(DraftAction::kPropose, news);
  if (!order_.ahead) q_rows_ = link_.receive(reply_);
  check(std::ssize(reply_.tokens) >= k, "DedicatedDrafter: fewer tokens than were asked for");

  block.ahead = order_.ahead;
  for (std::int64_t i = 0; i < k; ++i) {
    block.tokens.push_back(reply_.tokens[static_cast<std::size_t>(i)]);
    block.q.push_back(reply_.q[static_cast<std::size_t>(i)]);
    block.parent.push_back(static_cast<std::int32_t>(i) - 1);
  }
  if (q_rows_.rows > 0) block.q_rows = q_rows_.slice_rows(0, k);
  round_ = round;
  told_ = std::ssize(history);
  expected_ = block.tokens;
  expects_ahead_ = drafted_ahead(k, link_.max_drafted(), room(told_ + k + 1)) > 0;
}

void DedicatedDrafter::end() {
  receive_ahead();
  order(DraftAction::kEnd, {});
}

namespace {

/// Of one sequence, on the rank that drafts.
class Server {
 public:
  Server(DraftLink& link, ModelDrafter& draft, const AcceptanceChoice& acceptance, std::uint64_t seed,
         std::int64_t vocabulary, Tracer* tracer)
      : link_(link), draft_(draft), acceptance_(acceptance), seed_(seed), vocabulary_(vocabulary), tracer_(tracer) {}

  void begin(const DraftOrder& order) {
    sequence_ = order.sequence;
    history_.resize(static_cast<std::size_t>(order.count));
    link_.exchange_prompt(history_);
    draft_.begin(order.sequence, history_);
    future_.clear();
  }

  void extend(const DraftOrder& order) { history_.insert(history_.end(), order.tokens.begin(), order.tokens.end()); }

  void propose(const DraftOrder& order) {
    extend(order);
    if (!order.ahead) {
      TimedSpan span(tracer_, kDraftOrdered);
      draft_.propose(order.round, history_, order.k, block_);
      read();
      span.end(order.k);
      send(DraftBlock::kUnread);
    } else if (!std::ranges::equal(history_, future_) || block_.size() < order.k) {
      throw Disagreement("rank 0 took tokens for drafted ahead that this rank did not draft");
    }
    draft_ahead(order);
  }

 private:
  void draft_ahead(const DraftOrder& order) {
    const auto standing = std::ssize(history_);
    const std::int64_t count = drafted_ahead(order.k, link_.max_drafted(), draft_.room(standing + order.k + 1));
    if (count == 0) return;
    TimedSpan span(tracer_, kDraftAhead);
    future_ = history_;
    future_.insert(future_.end(), block_.tokens.begin(), block_.tokens.begin() + order.k);
    draft_.guess(order.round, future_, standing, block_);
    read();
    const Token guess = acceptance_.synthetic ? synthetic_next({.seed = seed_,
                                                                .sequence = sequence_,
                                                                .round = order.round,
                                                                .position = static_cast<std::uint32_t>(future_.size())},
                                                               vocabulary_)
                                              : block_.tokens.front();
    future_.push_back(guess);
    draft_.propose_ahead(order.round + 1, future_, standing, count, block_);
    read();
    span.end(count);
    send(guess);
  }

  void read() {
    if (block_.unread == nullptr) return;
    block_.unread->wait();
    block_.unread->read(block_);
  }

  void send(Token guess) {
    const Span span(tracer_, kSendDraft, block_.size());
    reply_.guess = guess;
    reply_.tokens = block_.tokens;
    reply_.q = block_.q;
    link_.send(reply_, block_.q_rows);
  }

  DraftLink& link_;
  ModelDrafter& draft_;
  const AcceptanceChoice& acceptance_;
  std::uint64_t seed_;
  std::int64_t vocabulary_;
  Tracer* tracer_;
  std::uint32_t sequence_ = 0;
  std::vector<Token> history_;  ///< prompt and all tokens that stand
  std::vector<Token> future_;   ///< history that the block was drafted after, where that was ahead
  DraftBlock block_;
  DraftReply reply_;
};

}  // namespace

void serve_drafts(DraftLink& link, ModelDrafter& draft, const AcceptanceChoice& acceptance, std::uint64_t seed,
                  std::int64_t vocabulary, Tracer* tracer) {
  Server server(link, draft, acceptance, seed, vocabulary, tracer);
  DraftOrder order;
  while (true) {
    TimedSpan wait(tracer, kOrder);
    link.exchange(order);
    wait.end();
    switch (order.action) {
      case DraftAction::kBegin:
        server.begin(order);
        break;
      case DraftAction::kExtend:
        server.extend(order);
        break;
      case DraftAction::kPropose:
        server.propose(order);
        break;
      case DraftAction::kEnd:
        return;
    }
  }
}

}  // namespace specdec
