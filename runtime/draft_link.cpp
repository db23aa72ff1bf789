#include "runtime/draft_link.h"

#include <algorithm>
#include <cstring>

#include "backend/error.h"
#include "parallel/disagreement.h"

namespace specdec {
namespace {

struct OrderHeader {
  std::int32_t action;
  std::uint32_t sequence;
  std::uint32_t round;
  std::int32_t k;
  std::int32_t count;
  std::int32_t interconnect;
  std::int32_t ahead;
  std::int32_t tokens;
  std::uint64_t progress;
};
static_assert(sizeof(OrderHeader) == 40, "the wire format has no padding");

struct ReplyHeader {
  std::int32_t guess;
  std::int32_t tokens;
};

struct Drafted {
  Token token;
  float q;
};

}  // namespace

DraftLink::DraftLink(Communicator& pair, Progress& progress, Backend& backend, std::int64_t max_drafted,
                     std::int64_t vocabulary)
    : pair_(pair),
      progress_(progress),
      backend_(backend),
      max_drafted_(max_drafted),
      vocabulary_(vocabulary),
      order_wire_(sizeof(OrderHeader) + static_cast<std::size_t>(max_drafted + 1) * sizeof(Token)),
      reply_wire_(reply_bytes(max_drafted)) {
  check(pair.size() == 2, "DraftLink: one rank asks and one drafts");
}

std::size_t DraftLink::reply_bytes(std::int64_t max_drafted) {
  return sizeof(ReplyHeader) + static_cast<std::size_t>(max_drafted) * sizeof(Drafted);
}

void DraftLink::exchange(DraftOrder& order) {
  const AsideCollectives aside(progress_, !is_root());
  if (is_root()) {
    check(std::ssize(order.tokens) <= max_drafted_ + 1, "DraftLink: more tokens than an order has room for");
    const OrderHeader header{.action = static_cast<std::int32_t>(order.action),
                             .sequence = order.sequence,
                             .round = order.round,
                             .k = order.k,
                             .count = order.count,
                             .interconnect = order.interconnect,
                             .ahead = order.ahead ? 1 : 0,
                             .tokens = static_cast<std::int32_t>(order.tokens.size()),
                             .progress = progress_.snapshot().round};
    std::memcpy(order_wire_.data(), &header, sizeof header);
    std::ranges::copy(std::as_bytes(std::span(order.tokens)), order_wire_.begin() + sizeof header);
  }
  pair_.broadcast(order_wire_, 0, Stream{});
  if (!is_root()) take(order);
  if (order.action == DraftAction::kBegin) begun_(order.interconnect);
}

void DraftLink::take(DraftOrder& order) {
  OrderHeader header;
  std::memcpy(&header, order_wire_.data(), sizeof header);
  if (header.tokens < 0 || header.tokens > max_drafted_ + 1 || header.k < 0 || header.k > max_drafted_) {
    throw Disagreement("an order to draft of impossible size has arrived from rank 0");
  }
  order = {.action = static_cast<DraftAction>(header.action),
           .sequence = header.sequence,
           .round = header.round,
           .k = header.k,
           .count = header.count,
           .interconnect = header.interconnect,
           .ahead = header.ahead != 0,
           .tokens = std::move(order.tokens)};
  order.tokens.resize(static_cast<std::size_t>(header.tokens));
  const auto tokens = std::as_writable_bytes(std::span(order.tokens));
  std::copy_n(order_wire_.begin() + sizeof header, tokens.size(), tokens.begin());
  // A round behind rank 0: when this rank does not go on, it is the one that is waited for.
  progress_.enter_round(header.progress == 0 ? 0 : header.progress - 1);
}

void DraftLink::exchange_prompt(std::span<Token> tokens) {
  const AsideCollectives aside(progress_, !is_root());
  pair_.broadcast(std::as_writable_bytes(tokens), 0, Stream{});
}

std::span<float> DraftLink::on_host(std::int64_t rows) {
  staged_.resize(static_cast<std::size_t>(rows * vocabulary_));
  return staged_;
}

void DraftLink::send(const DraftReply& reply, ConstRows q_rows) {
  // A long message may have to wait until rank 0 takes it, which it does when its pass is over.
  const AsideCollectives aside(progress_, true);
  const ReplyHeader header{.guess = reply.guess, .tokens = static_cast<std::int32_t>(reply.tokens.size())};
  std::memcpy(reply_wire_.data(), &header, sizeof header);
  for (std::size_t i = 0; i < reply.tokens.size(); ++i) {
    const Drafted drafted{.token = reply.tokens[i], .q = reply.q[i]};
    std::memcpy(reply_wire_.data() + sizeof header + i * sizeof drafted, &drafted, sizeof drafted);
  }
  pair_.broadcast(reply_wire_, 1, Stream{});
  if (vocabulary_ == 0) return;
  check(q_rows.rows == std::ssize(reply.tokens) && q_rows.stride == vocabulary_, "DraftLink: a distribution a token");
  if (backend_.on_host()) {
    // Its root only reads what it broadcasts.
    float* const data = const_cast<float*>(q_rows.data);
    pair_.broadcast(std::as_writable_bytes(std::span(data, static_cast<std::size_t>(q_rows.rows * vocabulary_))), 1,
                    Stream{});
    return;
  }
  const std::span<float> rows = on_host(q_rows.rows);
  backend_.download(std::as_writable_bytes(rows), reinterpret_cast<const std::byte*>(q_rows.data), Stream{});
  backend_.synchronize(Stream{});
  pair_.broadcast(std::as_writable_bytes(rows), 1, Stream{});
}

ConstRows DraftLink::receive(DraftReply& reply) {
  const AsideCollectives aside(progress_);
  pair_.broadcast(reply_wire_, 1, Stream{});
  ReplyHeader header;
  std::memcpy(&header, reply_wire_.data(), sizeof header);
  if (header.tokens < 0 || header.tokens > max_drafted_) {
    throw Disagreement("drafted tokens of impossible number have arrived");
  }
  reply.guess = header.guess;
  reply.tokens.resize(static_cast<std::size_t>(header.tokens));
  reply.q.resize(reply.tokens.size());
  for (std::size_t i = 0; i < reply.tokens.size(); ++i) {
    Drafted drafted;
    std::memcpy(&drafted, reply_wire_.data() + sizeof header + i * sizeof drafted, sizeof drafted);
    reply.tokens[i] = drafted.token;
    reply.q[i] = drafted.q;
  }
  if (vocabulary_ == 0) return {};
  if (rows_ == nullptr) {
    rows_ = backend_.allocate(static_cast<std::size_t>(max_drafted_ * vocabulary_) * sizeof(float));
  }
  const auto count = static_cast<std::int64_t>(header.tokens);
  const auto size = static_cast<std::size_t>(count * vocabulary_);
  if (backend_.on_host()) {
    pair_.broadcast(std::as_writable_bytes(std::span(rows_->floats(), size)), 1, Stream{});
  } else {
    const std::span<float> rows = on_host(count);
    pair_.broadcast(std::as_writable_bytes(rows), 1, Stream{});
    backend_.upload(rows_->data(), std::as_bytes(rows), Stream{});
  }
  return {rows_->floats(), count, vocabulary_, vocabulary_};
}

}  // namespace specdec
