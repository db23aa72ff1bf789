#include "runtime/round.h"

#include <algorithm>
#include <cstring>

#include "backend/error.h"

namespace specdec {
namespace {

struct WireHeader {
  std::int32_t action;
  std::uint32_t sequence;
  std::uint32_t number;
  std::int32_t kept;
  std::int32_t count;
  std::int32_t rows;
};
static_assert(sizeof(WireHeader) == 24 && sizeof(RoundRow) == 12, "the wire format has no padding");

}  // namespace

RoundChannel::RoundChannel(Communicator& control, Progress& progress, std::int64_t max_drafted)
    : control_(control), progress_(progress), max_drafted_(max_drafted), wire_(message_bytes(max_drafted)) {}

std::size_t RoundChannel::message_bytes(std::int64_t max_drafted) {
  return sizeof(WireHeader) + static_cast<std::size_t>(max_drafted + 1) * sizeof(RoundRow);
}

void RoundChannel::exchange(Round& round) {
  progress_.enter_round(++exchanged_);
  if (is_root()) {
    check(round.drafted() <= max_drafted_, "RoundChannel: more tokens drafted than the job's largest K");
    const WireHeader header{
        static_cast<std::int32_t>(round.action),     round.sequence, round.number, round.kept, round.count,
        static_cast<std::int32_t>(round.rows.size())};
    std::memcpy(wire_.data(), &header, sizeof header);
    // Not memcpy, which must not be given the null of a round without rows.
    std::ranges::copy(std::as_bytes(std::span(round.rows)), wire_.begin() + sizeof header);
  }
  control_.broadcast(wire_, 0, Stream{});
  if (!is_root()) {
    WireHeader header;
    std::memcpy(&header, wire_.data(), sizeof header);
    check(header.rows >= 0 && header.rows <= max_drafted_ + 1, "RoundChannel: a round of impossible size arrived");
    round.action = static_cast<RoundAction>(header.action);
    round.sequence = header.sequence;
    round.number = header.number;
    round.kept = header.kept;
    round.count = header.count;
    round.rows.resize(static_cast<std::size_t>(header.rows));
    const auto rows = std::as_writable_bytes(std::span(round.rows));
    std::copy_n(wire_.begin() + sizeof header, rows.size(), rows.begin());
  }
}

void RoundChannel::exchange_prompt(std::span<Token> tokens) {
  control_.broadcast(std::as_writable_bytes(tokens), 0, Stream{});
}

}  // namespace specdec
