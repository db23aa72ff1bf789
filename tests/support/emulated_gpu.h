#pragma once

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

namespace specdec {

/// One thread of a block of a kernel (backend/cuda/kernels/device.h), on a CPU: threads of a block are threads of the host, and blocks follow one
/// another. So a kernel's arithmetic is tested without a GPU, and a barrier that it lacks is a data race that the thread sanitizer sees.
class EmulatedGpu {
 public:
  struct Block {
    explicit Block(int count, std::size_t shared_bytes)
        : threads(count), barrier(count), exchange(static_cast<std::size_t>(count)), shared(shared_bytes / 8 + 1) {}
    int threads;
    std::barrier<> barrier;
    std::vector<std::uint64_t> exchange;  // [threads]
    std::vector<std::uint64_t> shared;    // words, for alignment
    std::int64_t x = 0;
    std::int64_t y = 0;
  };

  EmulatedGpu(Block& block, int thread) : block_(block), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const { return block_.threads; }
  std::int64_t block_x() const { return block_.x; }
  std::int64_t block_y() const { return block_.y; }
  void sync() { block_.barrier.arrive_and_wait(); }
  std::byte* shared() { return reinterpret_cast<std::byte*>(block_.shared.data()); }

  template <typename T>
  T shuffle(T value, int lane) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
    constexpr int kWarp = 32;
    std::memcpy(&block_.exchange[thread_], &value, sizeof value);
    sync();
    std::memcpy(&value, &block_.exchange[thread_ / kWarp * kWarp + lane], sizeof value);
    sync();
    return value;
  }

 private:
  Block& block_;
  int thread_;
};

/// Runs kernel(gpu) for every thread of a grid of blocks_x times blocks_y blocks.
template <typename Kernel>
void emulate(std::int64_t blocks_x, std::int64_t blocks_y, int threads, std::size_t shared_bytes,
             const Kernel& kernel) {
  EmulatedGpu::Block block(threads, shared_bytes);
  std::barrier between(threads);
  std::vector<std::jthread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
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
  }
}

}  // namespace specdec
