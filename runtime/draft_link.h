#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "models/config.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"
#include "runtime/drafter.h"

/// What rank 0 and a rank that does nothing but draft say to each other (docs/protocol.md, "A rank that drafts").
namespace specdec {

enum class DraftAction : std::int32_t {
  kBegin,    ///< a new sequence: its prompt of `count` tokens follows in one broadcast
  kExtend,   ///< tokens that stand, more than one message has room for
  kPropose,  ///< tokens that stand, then draft `k`
  kEnd,      ///< the job is over
};

/// From rank 0.
struct DraftOrder {
  DraftAction action = DraftAction::kEnd;
  std::uint32_t sequence = 0;
  std::uint32_t round = 0;
  std::int32_t k = 0;
  std::int32_t count = 0;         ///< kBegin: tokens of the prompt
  std::int32_t interconnect = 0;  ///< kBegin: which of the job's interconnects messages take from then on
  bool ahead = false;             ///< kPropose: what was drafted ahead is what is asked for, and was taken
  std::vector<Token> tokens;      ///< that stand, since the order before; at most max_drafted() + 1
};

/// To rank 0. The distributions that the tokens were drawn from, unless greedy, follow in one broadcast.
struct DraftReply {
  Token guess = DraftBlock::kUnread;  ///< drafted ahead: the token before these that the target was expected to choose
  std::vector<Token> tokens;
  std::vector<float> q;
};

/// Both ends of it: rank 0 of a group of two, and the other one.
class DraftLink {
 public:
  /// `vocabulary`: of the distributions; 0 where the draft is greedy and sends none. `backend`: where they lie. `max_drafted`: the largest K of the job.
  DraftLink(Communicator& pair, Progress& progress, Backend& backend, std::int64_t max_drafted,
            std::int64_t vocabulary);

  /// Sends it on rank 0, overwrites it on the other.
  void exchange(DraftOrder& order);
  void exchange_prompt(std::span<Token> tokens);
  void send(const DraftReply& reply, ConstRows q_rows);
  /// Returns the distributions, in the backend's memory until the next call; no rows where none are sent.
  ConstRows receive(DraftReply& reply);

  /// Is called on both with every kBegin, before its prompt travels.
  void on_begin(std::function<void(std::int32_t interconnect)> begun) { begun_ = std::move(begun); }

  /// Of the tokens' message.
  static std::size_t reply_bytes(std::int64_t max_drafted);

  std::int64_t max_drafted() const { return max_drafted_; }

 private:
  bool is_root() const { return pair_.rank() == 0; }
  /// Reads the order that has come.
  void take(DraftOrder& order);
  /// Distributions of `rows` tokens on the host, for a broadcast.
  std::span<float> on_host(std::int64_t rows);

  Communicator& pair_;
  Progress& progress_;
  Backend& backend_;
  std::int64_t max_drafted_;
  std::int64_t vocabulary_;
  std::vector<std::byte> order_wire_;
  std::vector<std::byte> reply_wire_;
  std::vector<float> staged_;     ///< distributions, where the backend's memory is not the host's
  std::unique_ptr<Buffer> rows_;  ///< [max_drafted, vocabulary], on rank 0
  std::function<void(std::int32_t)> begun_ = [](std::int32_t) {};
};

}  // namespace specdec
