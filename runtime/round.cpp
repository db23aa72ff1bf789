#include "runtime/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/error.h"
#include "parallel/disagreement.h"

namespace specdec {
namespace {

struct WireHeader {
  std::int32_t action;
  std::uint32_t sequence;
  std::uint32_t number;
  std::int32_t kept;
  std::int32_t count;
  std::int32_t interconnect;
  std::int32_t rows;
  std::int32_t together;  // a fingerprint begins on eight bytes
  Fingerprint fingerprint;
};
static_assert(sizeof(WireHeader) == 72 && sizeof(RoundRow) == 12, "the wire format has no padding");

std::uint64_t pair_of(std::uint32_t low, std::uint32_t high) { return low | std::uint64_t{high} << 32; }

}  // namespace

std::uint64_t hash_of(const Round& round) {
  RunningHash hash;
  hash.add(pair_of(static_cast<std::uint32_t>(round.action), round.sequence));
  hash.add(pair_of(round.number, static_cast<std::uint32_t>(round.kept)));
  hash.add(pair_of(static_cast<std::uint32_t>(round.count), static_cast<std::uint32_t>(round.rows.size())));
  hash.add(pair_of(static_cast<std::uint32_t>(round.interconnect), round.together ? 1 : 0));
  for (const RoundRow& row : round.rows) {
    hash.add(pair_of(static_cast<std::uint32_t>(row.token), static_cast<std::uint32_t>(row.parent)));
    hash.add(std::bit_cast<std::uint32_t>(row.q));
  }
  return hash.value();
}

RoundChannel::RoundChannel(Communicator& control, Progress& progress, std::int64_t max_drafted)
    : control_(control), progress_(progress), max_drafted_(max_drafted), wire_(message_bytes(max_drafted)) {}

std::size_t RoundChannel::message_bytes(std::int64_t max_drafted) {
  return sizeof(WireHeader) + static_cast<std::size_t>(max_drafted + 1) * sizeof(RoundRow);
}

void RoundChannel::exchange(Round& round) {
  progress_.enter_round(++exchanged_);
  if (is_root()) {
    check(round.drafted() <= max_drafted_, "RoundChannel: more tokens drafted than the job's largest K");
    round.fingerprint.message = hash_of(round);
    round.fingerprint.drafted = filled_;
    const WireHeader header{.action = static_cast<std::int32_t>(round.action),
                            .sequence = round.sequence,
                            .number = round.number,
                            .kept = round.kept,
                            .count = round.count,
                            .interconnect = round.interconnect,
                            .rows = static_cast<std::int32_t>(round.rows.size()),
                            .together = round.together ? 1 : 0,
                            .fingerprint = round.fingerprint};
    std::memcpy(wire_.data(), &header, sizeof header);
    // Not memcpy, which must not be given the null of a round without rows.
    std::ranges::copy(std::as_bytes(std::span(round.rows)), wire_.begin() + sizeof header);
  }
  control_.broadcast(wire_, 0, Stream{});
  if (!is_root()) {
    WireHeader header;
    std::memcpy(&header, wire_.data(), sizeof header);
    if (header.rows < 0 || header.rows > max_drafted_ + 1) {
      throw Disagreement("a round of impossible size has arrived from rank 0");
    }
    round.action = static_cast<RoundAction>(header.action);
    round.sequence = header.sequence;
    round.number = header.number;
    round.kept = header.kept;
    round.count = header.count;
    round.interconnect = header.interconnect;
    round.together = header.together != 0;
    round.fingerprint = header.fingerprint;
    round.rows.resize(static_cast<std::size_t>(header.rows));
    const auto rows = std::as_writable_bytes(std::span(round.rows));
    std::copy_n(wire_.begin() + sizeof header, rows.size(), rows.begin());
    if (filled_ != 0 && round.fingerprint.drafted != filled_) {
      throw Disagreement(
          fmt::format("what this rank drafted in the round before is not what rank 0 did (sequence {}, round {})",
                      round.sequence, round.number));
    }
  }
  filled_ = 0;
}

void RoundChannel::exchange_prompt(const Round& begin, std::span<Token> tokens) {
  begun_(begin);
  control_.broadcast(std::as_writable_bytes(tokens), 0, Stream{});
}

}  // namespace specdec
