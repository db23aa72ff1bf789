#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "backend/dtype.h"
#include "tests/support/emulated_team.h"

namespace specdec {

/// One thread of a block of a kernel (backend/cuda/kernels/device.h), on a CPU: blocks follow one another, and the threads of a block are an
/// EmulatedTeam. So a kernel's arithmetic is tested without a GPU, and a barrier that it lacks is a data race that the thread sanitizer sees.
class EmulatedGpu {
 public:
  static constexpr int kWarp = 32;

  /// Memory that a kernel asked for ahead of its use.
  using Asked = std::span<const std::byte>;

  struct Block {
    Block(int count, std::size_t shared_bytes)
        : threads(count),
          team(count),
          barrier(team, count),
          exchange(count),
          fragments(count),
          asked(count),
          shared(shared_bytes / 8 + 1) {
      for (int first = 0; first < count; first += kWarp) {
        warps.push_back(std::make_unique<EmulatedTeam::Barrier>(team, std::min(kWarp, count - first)));
      }
    }
    int threads;
    EmulatedTeam team;
    EmulatedTeam::Barrier barrier;
    std::vector<std::unique_ptr<EmulatedTeam::Barrier>> warps;
    std::vector<std::uint64_t> exchange;                  // [threads]
    std::vector<std::array<std::uint32_t, 6>> fragments;  // [threads] of A and B
    std::vector<std::vector<Asked>> asked;                // [threads]
    std::vector<std::uint64_t> shared;                    // words, for alignment
    std::int64_t x = 0;
    std::int64_t y = 0;
  };

  EmulatedGpu(Block& block, int thread) : block_(block), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const { return block_.threads; }
  std::int64_t block_x() const { return block_.x; }
  std::int64_t block_y() const { return block_.y; }
  void sync() { block_.barrier.arrive_and_wait(); }
  bool sync_all(bool is) {
    block_.exchange[thread_] = is ? 1 : 0;
    sync();
    const bool all = std::ranges::find(block_.exchange, 0U) == block_.exchange.end();
    sync();
    return all;
  }
  void sync_warp() { block_.warps[thread_ / kWarp]->arrive_and_wait(); }
  std::byte* shared() { return reinterpret_cast<std::byte*>(block_.shared.data()); }

  void store_release(std::uint32_t* word, std::uint32_t value) {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  std::uint32_t load_acquire(const std::uint32_t* word) {
    return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
  }
  void pause() { std::this_thread::yield(); }

  template <typename T>
  T shuffle(T value, int lane) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
    std::memcpy(&block_.exchange[thread_], &value, sizeof value);
    sync_warp();
    std::memcpy(&value, &block_.exchange[first_of_warp() + lane], sizeof value);
    sync_warp();
    return value;
  }

  void atomic_add(std::uint32_t* to, std::uint32_t value) {
    std::atomic_ref(*to).fetch_add(value, std::memory_order_relaxed);
  }

  template <DType kType>
  std::uint32_t round_pair(float lower, float upper) {
    const auto round = kType == DType::kF16 ? float_to_f16 : float_to_bf16;
    return round(lower) | static_cast<std::uint32_t>(round(upper)) << 16;
  }

  void let_next_start() {}
  void wait_for_previous() {}
  void prefetch(const std::byte* from, std::int64_t bytes) {
    block_.asked[thread_].emplace_back(from, static_cast<std::size_t>(bytes));
  }
  void load_weights(std::uint32_t (&to)[4], const std::byte* from) { std::memcpy(to, from, sizeof to); }

  // Copies are done no sooner than they must be, so that one that was not awaited shows.
  void copy_once(std::byte* to, const std::byte* from) { copies_.push_back({to, from, 16, group_}); }
  template <int kBytes>
  void copy_or_zero(std::byte* to, const std::byte* from, bool is) {
    copies_.push_back({to, is ? from : nullptr, kBytes, group_});
  }
  void end_of_copies() { ++group_; }
  template <int kGroups>
  void await_copies() {
    while (!copies_.empty() && copies_.front().group < group_ - kGroups) {
      const Copy& copy = copies_.front();
      if (copy.from != nullptr) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        std::memset(copy.to, 0, copy.bytes);
      }
      copies_.pop_front();
    }
  }

  /// mma.sync.m16n8k16, fragments as the PTX manual lays them out; here in fp32, in order of k, which is not the hardware's order.
  template <DType kType>
  void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    block_.fragments[thread_] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    sync_warp();
    const int group = thread_ % kWarp / 4;
    const int pair = thread_ % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = group + i / 2 * 8;
      const int column = pair * 2 + i % 2;
      for (int k = 0; k < 16; ++k) {
        // The lane and register that hold A[row][k] and B[k][column].
        const auto& of_a = block_.fragments[first_of_warp() + row % 8 * 4 + k % 8 / 2];
        const auto& of_b = block_.fragments[first_of_warp() + column * 4 + k % 8 / 2];
        d[i] += half<kType>(of_a[row / 8 + k / 8 * 2], k % 2) * half<kType>(of_b[4 + k / 8], k % 2);
      }
    }
    sync_warp();
  }

 private:
  int first_of_warp() const { return thread_ / kWarp * kWarp; }
  template <DType kType>
  static float half(std::uint32_t pair, int upper) {
    const auto bits = static_cast<std::uint16_t>(pair >> (16 * upper));
    return kType == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
  }

  struct Copy {
    std::byte* to;
    const std::byte* from;  ///< null: zeros
    std::size_t bytes;
    int group;
  };

  Block& block_;
  int thread_;
  std::deque<Copy> copies_;
  int group_ = 0;
};

/// Runs kernel(gpu) for every thread of a grid of blocks_x times blocks_y blocks. What they asked for ahead.
template <typename Kernel>
std::vector<EmulatedGpu::Asked> emulate(std::int64_t blocks_x, std::int64_t blocks_y, int threads,
                                        std::size_t shared_bytes, const Kernel& kernel) {
  EmulatedGpu::Block block(threads, shared_bytes);
  EmulatedTeam::Barrier between(block.team, threads);
  block.team.run([&](int thread) {
    EmulatedGpu gpu(block, thread);
    for (std::int64_t at = 0; at < blocks_x * blocks_y; ++at) {
      if (thread == 0) {
        block.x = at % blocks_x;
        block.y = at / blocks_x;
      }
      between.arrive_and_wait();
      kernel(gpu);
      between.arrive_and_wait();
    }
  });
  std::vector<EmulatedGpu::Asked> asked;
  for (const auto& of_thread : block.asked) {
    asked.insert(asked.end(), of_thread.begin(), of_thread.end());
  }
  return asked;
}

}  // namespace specdec
