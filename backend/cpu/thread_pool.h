#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cpu/announcement.h"

namespace specdec {

/// The cores that the calling thread may run on, in order.
std::vector<int> own_cores();

/// The core of each thread of a team of `threads` whose caller, thread 0, is on core `callers` and may run on `own`, where these are as many as threads. With
/// more cores, those of other ranks perhaps, or fewer none: nobody is bound then.
std::vector<int> cores_of_team(std::vector<int> own, int threads, int callers);

/// Sets flush-to-zero and denormals-are-zero for the calling thread (docs/numerics.md, rule 5): subnormals cost
/// hundreds of cycles, and AVX512-BF16 flushes them in any case. Every thread that computes calls this once; a pool's
/// workers do.
void flush_subnormals_to_zero();

/// A fixed team of threads for fork-join loops: the caller is thread 0. One round costs no allocation and no lock; with
/// one thread it is a plain call. Rounds are started by one thread at a time.
class ThreadPool {
 public:
  enum class Pin : std::uint8_t {
    kNone,
    /// Each worker to its core of cores_of_team(). The caller is left with what the scheduler gives it; where that is a worker's, the worker goes to the core that is free. On one
    /// core both would take turns for as long as it likes: the scheduler sees two threads that mostly sleep.
    kToOwnCores,
  };

  /// Throws kBadInput when the machine does not let so many threads start.
  explicit ThreadPool(int threads, Pin pin = Pin::kNone);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Its first threads whose cores are near that of the caller (CoreDistance), all unless it is said.
  int near_threads() const { return size() - far_threads_; }
  void set_near_threads(int threads) { far_threads_ = size() - threads; }
  /// Whether others are far, so that rounds with them, and what is written for them or by them, take several times as long.
  bool is_far() const { return far_threads_ > 0; }

  /// How many threads share work that is worth `worth` of them, or `worth_with_far`, fewer, where some are far: near ones as if there were no others, and those beside them as the second says.
  int sharing(std::int64_t worth, std::int64_t worth_with_far) const {
    const std::int64_t near = near_threads();
    return static_cast<int>(
        std::clamp<std::int64_t>(worth <= near ? worth : std::max(worth_with_far, near), 1, size()));
  }

  /// What a loop's threads have not come to of the part of one of them (share_out() in parallel_for.h). Nobody sets it up: the first that takes of it in a round finds that it is of an
  /// earlier one, so that its line stays with its own thread unless others help.
  class alignas(64) Part {
   public:
    static constexpr std::int64_t kMostUnits = std::int64_t{1} << 24;
    /// Takes up to `most` units of [begin, end), front to back: the first of them, or `end` when none is left. `round` is the loop's, end < kMostUnits.
    std::int64_t take(std::uint64_t round, std::int64_t begin, std::int64_t end, std::int64_t most);

   private:
    std::atomic<std::uint64_t> next_{0};  ///< round * kMostUnits + unit
  };
  /// [size()], for one round at a time.
  Part* parts() { return parts_.get(); }
  /// The number of the round that run() starts next, from 1 on.
  std::uint64_t next_round() const { return rounds_ + 1; }

  /// Calls task(thread) for thread in [0, size()), each on its own thread, and returns when all have returned. `task`
  /// must not throw: no one could unwind a half-finished round. What it holds by value comes to the others all at once, what it holds by reference line after line.
  template <typename Task>
  void run(Task&& task) {
    if (workers_.empty()) {
      task(0);
      return;
    }
    using Plain = std::remove_reference_t<Task>;
    fork_join({.call = [](void* context, int thread) noexcept { (*static_cast<Plain*>(context))(thread); },
               .context = const_cast<void*>(static_cast<const void*>(&task)),
               .bytes = sizeof(Plain)});
  }

 private:
  struct Round {
    void (*call)(void* context, int thread) noexcept = nullptr;  ///< null: there are no more
    void* context = nullptr;
    std::size_t bytes = 0;  ///< of the context
  };
  struct Nothing {};

  void fork_join(const Round& round);
  void make_room(int core);
  void work(int thread);
  void stop();

  int far_threads_ = 0;
  std::uint64_t rounds_ = 0;
  Announcement<Round> start_;
  std::unique_ptr<Announcement<Nothing>[]> done_;  ///< of each worker
  std::vector<std::thread> workers_;
  std::vector<int> cores_;  ///< of each thread, where workers are bound
  std::unique_ptr<Part[]> parts_;
};

}  // namespace specdec
