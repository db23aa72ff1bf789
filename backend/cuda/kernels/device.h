#pragma once

#include <cstdint>

#include "backend/cpu/lanes_inl.h"

/// Kernels are templates over a `Gpu`, through which a thread of a block sees the others: CudaGpu (cuda_gpu.h) on a device, and EmulatedGpu
/// (tests/support/emulated_gpu.h) on a CPU, where the unit tests compare every bit with the CPU backend and the thread sanitizer finds
/// a barrier that is missing. A Gpu has
///
///     int thread(), threads();           of the block; all threads of a block call the following together:
///     std::int64_t block_x(), block_y(); which block of the grid
///     void sync();                       a barrier; memory of the block and of the grid is seen by all of the block after it
///     bool sync_all(bool is);            the same; whether `is` holds for every thread of the block
///     void sync_warp();                  a barrier for the 32 threads of a warp, and memory of the block
///     T shuffle(T value, int lane);      `value` of a lane of the same 32
///     std::byte* shared();               the block's memory, as large as the launch said
///     void atomic_add(std::uint32_t* to, std::uint32_t value);   of one thread alone, to memory of the block
///     std::uint32_t round_pair<type>(lower, upper);   two floats rounded to bf16 or fp16
///     void multiply_add<type>(d, a, b);  of a warp: D += A B on tensor cores (mma.sync.m16n8k16, bf16 or fp16 in, fp32 sums)
///     void load_weights(to, from);       16 bytes that are read once
///     void prefetch(from, bytes);        a hint: to the second-level cache; of one thread, both multiples of 16
///     void let_next_start();             the next kernel, if a parameter of it is kAwaitedByKernel, may start where there is room, up to its
///                                        wait_for_previous(); called for a kernel before it starts, unless a parameter is kLetsNextStart
///     void wait_for_previous();          for the kernel before this one; by a kernel that may start early, others find it ended
///     void store_release(word, value), std::uint32_t load_acquire(word);  of one thread: words that other devices and the host see too
///     void pause();                      of one thread: between two looks at such a word
/// and copies of a thread's own, from memory to the block's, which are there once they have been awaited:
///     void copy_once(to, from);                   16 bytes that are read once
///     void copy_or_zero<bytes>(to, from, is);     zeros, and nothing is read, where `is` is false
///     void end_of_copies();              of a group of them
///     void await_copies<groups>();       all but the latest `groups` groups are there
#if defined(__CUDACC__)
#define SPECDEC_DEVICE __device__
#define SPECDEC_PRAGMA(text) _Pragma(#text)
#define SPECDEC_UNROLL _Pragma("unroll")
#define SPECDEC_UNROLL_BY(count) SPECDEC_PRAGMA(unroll count)
#else
#define SPECDEC_DEVICE
#define SPECDEC_UNROLL
#define SPECDEC_UNROLL_BY(count)
#endif

namespace specdec::cuda {

inline constexpr int kWarp = 32;
/// Lanes that a row is summed in: the CPU's (docs/numerics.md, rule 5).
inline constexpr int kRowLanes = kLanes;

/// act(i, load(i)) for i = 0, 1, ... count - 1, in order, with kLoads loads under way at a time. None of them is conditional: a thread has seven predicates, and loads
/// that need more of them follow one another.
template <int kLoads, typename Load, typename Act>
SPECDEC_DEVICE void in_batches(int count, const Load& load, const Act& act) {
  int at = 0;
  for (; at + kLoads <= count; at += kLoads) {
    decltype(load(0)) loaded[kLoads];
    SPECDEC_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      loaded[i] = load(at + i);
    }
    SPECDEC_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      act(at + i, loaded[i]);
    }
  }
  if constexpr (kLoads > 1) {
    constexpr int kFewer = kLoads >= 4 ? kLoads / 4 : 1;
    in_batches<kFewer>(
        count - at, [&](int i) { return load(at + i); }, [&](int i, const auto& value) { act(at + i, value); });
  }
}

/// to[i] = load(i) for the first `count` places, 0 for the others; where there are no others no load is conditional, as in in_batches().
template <int kLoads, typename Load>
SPECDEC_DEVICE void load_or_zero(float (&to)[kLoads], int count, const Load& load) {
  if (count >= kLoads) {
    SPECDEC_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      to[i] = load(i);
    }
  } else {
    SPECDEC_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      to[i] = i < count ? load(i) : 0;
    }
  }
}

/// How many of `count` items, dealt in turn, thread `thread` of `threads` gets.
constexpr int share_of(std::int64_t count, int thread, int threads) {
  return count <= thread ? 0 : static_cast<int>((count - thread + threads - 1) / threads);
}

/// Sum over the lanes 0 to 15 of a warp in their fixed tree; every lane gets it.
template <class Gpu, typename T>
SPECDEC_DEVICE T tree_sum(Gpu& gpu, T value) {
  const int lane = gpu.thread() % kWarp;
  for (int half = kRowLanes / 2; half > 0; half /= 2) {
    const T other = gpu.shuffle(value, (lane + half) % kWarp);
    value = value + other;
  }
  return gpu.shuffle(value, 0);
}

}  // namespace specdec::cuda
