#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

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

  /// What a thread has not come to of its part of a loop (share_out() in parallel_for.h).
  struct alignas(64) Part {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  /// [size()], for one round at a time.
  Part* parts() { return parts_.get(); }

  /// Calls task(thread) for thread in [0, size()), each on its own thread, and returns when all have returned. `task`
  /// must not throw: no one could unwind a half-finished round.
  template <typename Task>
  void run(Task&& task) {
    if (workers_.empty()) {
      task(0);
      return;
    }
    using Plain = std::remove_reference_t<Task>;
    fork_join([](void* context, int thread) noexcept { (*static_cast<Plain*>(context))(thread); },
              const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using Call = void (*)(void* context, int thread) noexcept;

  void fork_join(Call call, void* context);
  void make_room(int core);
  void work(int thread);
  void stop();

  Call call_ = nullptr;
  void* context_ = nullptr;
  // On lines of their own: workers poll the first while others still count down the second.
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::uint32_t> pending_{0};
  std::vector<std::thread> workers_;
  std::vector<int> cores_;  ///< of each thread, where workers are bound
  std::unique_ptr<Part[]> parts_;
};

}  // namespace specdec
