#include "parallel/culprit.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace specdec {
namespace {

/// Orders ranks by how far they have come: inside collective n comes after having left n - 1 and before having left n.
std::pair<std::uint64_t, std::uint64_t> advance(const ProgressRecord& progress) {
  return {progress.round, 2 * progress.collective - (progress.state == RankState::kWaiting ? 1 : 0)};
}

/// Whether some rank needs another one to go on; a rank that leaves waits in MPI_Finalize.
bool anybody_waits(std::span<const RankStatus> ranks) {
  for (const RankStatus& status : ranks) {
    if (status.progress.state == RankState::kWaiting || status.progress.state == RankState::kLeaving) {
      return true;
    }
  }
  return false;
}

/// How long it may be held against a rank that it does not go on. One that waits inside a collective is only to blame when nobody else
/// has come any further meanwhile: it is freed by the rank that it waits for, and its word of that comes a heartbeat later.
double blameable_stall(const RankStatus& status, std::span<const RankStatus> ranks) {
  double stall = status.stall;
  if (status.progress.state == RankState::kWaiting) {
    for (const RankStatus& other : ranks) {
      stall = std::min(stall, other.stall);
    }
  }
  return stall;
}

/// The rank without a better one before it; `better(a, b)` says that a is a worse culprit than b.
template <typename Candidate, typename Better>
const RankStatus* select(std::span<const RankStatus> ranks, Candidate&& candidate, Better&& better) {
  const RankStatus* best = nullptr;
  for (const RankStatus& status : ranks) {
    if (status.progress.state != RankState::kLeaving && candidate(status) &&
        (best == nullptr || better(status, *best))) {
      best = &status;
    }
  }
  return best;
}

bool is_silent_for_longer(const RankStatus& a, const RankStatus& b) { return a.silence > b.silence; }

}  // namespace

std::optional<Culprit> find_culprit(std::span<const RankStatus> ranks, double deadline) {
  if (const RankStatus* dead = select(
          ranks, [](const RankStatus& s) { return s.lost; },
          [](const RankStatus& a, const RankStatus& b) { return a.lost_age > b.lost_age; })) {
    return Culprit{dead->rank, FailureCause::kDied};
  }
  if (const RankStatus* silent = select(
          ranks, [&](const RankStatus& s) { return s.silence > deadline; }, is_silent_for_longer)) {
    return Culprit{silent->rank, FailureCause::kSilent};
  }
  if (!anybody_waits(ranks)) {
    return std::nullopt;
  }
  const RankStatus* last = select(
      ranks, [](const RankStatus& s) { return s.progress.state != RankState::kIdle; },
      [](const RankStatus& a, const RankStatus& b) { return advance(a.progress) < advance(b.progress); });
  if (last == nullptr || blameable_stall(*last, ranks) <= deadline) {
    return std::nullopt;
  }
  // Heartbeats end together with the work of a rank that is stopped, and the last of them may have told nothing new.
  const auto no_longer_answers = [&](const RankStatus& s) { return s.silence >= deadline / 2; };
  if (no_longer_answers(*last)) {
    return Culprit{last->rank, FailureCause::kSilent};
  }
  if (last->progress.state == RankState::kWaiting) {
    // Ranks do not leave a collective all at once: one that was stopped in the next may hold back one that is still in this.
    if (const RankStatus* awaited = select(ranks, no_longer_answers, is_silent_for_longer)) {
      return Culprit{awaited->rank, FailureCause::kSilent};
    }
  }
  return Culprit{last->rank, FailureCause::kStalled};
}

std::vector<int> odd_ranks(std::span<const int> disagreeing, int ranks) {
  const bool rank_0_with_itself = std::ranges::find(disagreeing, 0) != disagreeing.end();
  const bool rank_0_with_all = ranks > 2 && static_cast<int>(disagreeing.size()) == ranks - 1;
  if (rank_0_with_itself || rank_0_with_all) {
    return {0};
  }
  return {disagreeing.begin(), disagreeing.end()};
}

}  // namespace specdec
