#pragma once

#include <atomic>
#include <cstdint>

namespace specdec {

/// What a rank is doing, for the watchdog.
enum class RankState : std::uint32_t {
  kComputing,
  kWaiting,
  kLeaving,
  kIdle,  ///< waits to be given work, which nobody owes it
};

/// How far a rank has come: a snapshot of Progress, sent to rank 0 as plain bytes.
struct ProgressRecord {
  std::uint64_t ticks = 0;       ///< changes whenever the rank makes progress of any kind
  std::uint64_t round = 0;       ///< round of the decoding loop
  std::uint64_t collective = 0;  ///< number of the last collective that was entered
  RankState state = RankState::kComputing;

  friend bool operator==(const ProgressRecord&, const ProgressRecord&) = default;
};

/// A rank's own account of its progress. One thread writes, the watchdog reads; a write is a relaxed store, so it may
/// stand in the hot path.
class Progress {
 public:
  /// Work was done (a layer was computed or packed): a long computation is no hang.
  void tick() { bump(ticks_); }
  void enter_round(std::uint64_t round) {
    round_.store(round, std::memory_order_relaxed);
    tick();
  }
  /// Only the outermost counts: a collective that is made of others is made of more of them on some ranks, and the numbers of all ranks
  /// must be comparable.
  void enter_collective() {
    if (depth_++ == 0) {
      if (!aside_) bump(collective_);
      set(waiting_as_);
    }
  }
  void leave_collective() {
    if (--depth_ == 0) {
      set(RankState::kComputing);
    }
  }
  /// The host waits for its device, which may wait for other ranks in the collectives that were enqueued last: as if it had not left them yet.
  void begin_device_wait() { set(RankState::kWaiting); }
  void end_device_wait() { set(depth_ == 0 ? RankState::kComputing : RankState::kWaiting); }
  /// From now on collectives are among some of the ranks only, so their numbers say nothing about how far this one has come. `idle`: it waits in them for work.
  void begin_aside(bool idle) {
    aside_ = true;
    waiting_as_ = idle ? RankState::kIdle : RankState::kWaiting;
  }
  void end_aside() {
    aside_ = false;
    waiting_as_ = RankState::kWaiting;
  }
  /// This rank has done its part: from now on nobody's wait is its fault.
  void leave() { set(RankState::kLeaving); }

  ProgressRecord snapshot() const {
    return {ticks_.load(std::memory_order_relaxed), round_.load(std::memory_order_relaxed),
            collective_.load(std::memory_order_relaxed), state_.load(std::memory_order_relaxed)};
  }

 private:
  static void bump(std::atomic<std::uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void set(RankState state) {
    state_.store(state, std::memory_order_relaxed);
    tick();
  }

  std::atomic<std::uint64_t> ticks_{0};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<std::uint64_t> collective_{0};
  std::atomic<RankState> state_{RankState::kComputing};
  // Of the writing thread alone.
  int depth_ = 0;
  bool aside_ = false;
  RankState waiting_as_ = RankState::kWaiting;
};

/// Collectives of some ranks only (Progress::begin_aside), as long as it lives. They do not nest.
class AsideCollectives {
 public:
  explicit AsideCollectives(Progress& progress, bool idle = false) : progress_(progress) {
    progress_.begin_aside(idle);
  }
  ~AsideCollectives() { progress_.end_aside(); }
  AsideCollectives(const AsideCollectives&) = delete;
  AsideCollectives& operator=(const AsideCollectives&) = delete;

 private:
  Progress& progress_;
};

/// Marks the rank as waiting inside a collective for the watchdog, also when the collective throws.
class InCollective {
 public:
  explicit InCollective(Progress& progress) : progress_(progress) { progress_.enter_collective(); }
  ~InCollective() { progress_.leave_collective(); }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;

 private:
  Progress& progress_;
};

}  // namespace specdec
