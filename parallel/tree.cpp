#include "parallel/tree.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/error.h"

namespace specdec {

namespace {

constexpr std::size_t kBlock = 16;  // elements that are summed side by side: a cache line of floats, the widest vector

#if defined(__x86_64__)
#define SPECDEC_TARGET(isa) [[gnu::target(isa)]]
#else
#define SPECDEC_TARGET(isa)
#endif

/// A block in registers; how many it takes is the instruction set's affair, and an addition has the same bits on all.
using Floats [[gnu::vector_size(sizeof(float) * kBlock)]] = float;
using Words [[gnu::vector_size(sizeof(float) * kBlock)]] = std::uint32_t;
using Halves [[gnu::vector_size(sizeof(float) * kBlock / 2)]] = std::uint16_t;

/// How elements of one type are added: as `Floats` that hold values of that type.
template <typename T>
struct Lanes;

template <>
struct Lanes<float> {
  [[gnu::always_inline]] static void load(const float* from, Floats& to) { __builtin_memcpy(&to, from, sizeof to); }
  [[gnu::always_inline]] static void store(const Floats& from, float* to) { __builtin_memcpy(to, &from, sizeof from); }
  [[gnu::always_inline]] static void round(Floats& /*sum*/) {}
};

template <>
struct Lanes<BF16> {
  [[gnu::always_inline]] static void load(const BF16* from, Floats& to) {
    Halves bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    const Words words = __builtin_convertvector(bits, Words) << 16;
    __builtin_memcpy(&to, &words, sizeof to);
  }
  [[gnu::always_inline]] static void store(const Floats& from, BF16* to) {
    Words words;
    __builtin_memcpy(&words, &from, sizeof words);
    const Halves bits = __builtin_convertvector(words >> 16, Halves);
    __builtin_memcpy(static_cast<void*>(to), &bits, sizeof bits);
  }
  /// As float_to_bf16.
  [[gnu::always_inline]] static void round(Floats& sum) {
    Words bits;
    __builtin_memcpy(&bits, &sum, sizeof bits);
    const Words magnitude = bits & 0x7fffffffU;
    const Words nearest = bits + 0x7fffU + ((bits >> 16) & 1U);
    const Words normal = magnitude < 0x00800000U ? bits & 0x80000000U : nearest;
    bits = (magnitude > 0x7f800000U ? bits | 0x00400000U : normal) & 0xffff0000U;
    __builtin_memcpy(&sum, &bits, sizeof sum);
  }
};

template <int kLeaves, typename T>
[[gnu::always_inline]] inline void sum_lanes(const T* const* leaves, T* out, std::size_t end, const std::byte* soon) {
  for (std::size_t at = 0; at < end; at += kBlock) {
#if defined(__x86_64__)
    if (soon != nullptr) {
      asm volatile("prefetchw %0" : : "m"(soon[at * sizeof(T)]));
    }
#endif
    Floats partial[kLeaves];
    for (int r = 0; r < kLeaves; ++r) {
      Lanes<T>::load(leaves[r] + at, partial[r]);
    }
    for (int stride = 1; stride < kLeaves; stride *= 2) {
      for (int into = 0; into + stride < kLeaves; into += 2 * stride) {
        partial[into] += partial[into + stride];
        Lanes<T>::round(partial[into]);
      }
    }
    Lanes<T>::store(partial[0], out + at);
  }
}

template <typename T>
using Sum = void (*)(const T* const* leaves, T* out, std::size_t end, const std::byte* soon);

template <int kLeaves, typename T>
void sum_baseline(const T* const* leaves, T* out, std::size_t end, const std::byte* soon) {
  sum_lanes<kLeaves>(leaves, out, end, soon);
}
template <int kLeaves, typename T>
SPECDEC_TARGET("avx2")
void sum_avx2(const T* const* leaves, T* out, std::size_t end, const std::byte* soon) {
  sum_lanes<kLeaves>(leaves, out, end, soon);
}
template <int kLeaves, typename T>
SPECDEC_TARGET("avx512f,avx512bw")
void sum_avx512(const T* const* leaves, T* out, std::size_t end, const std::byte* soon) {
  sum_lanes<kLeaves>(leaves, out, end, soon);
}

template <int kLeaves, typename T>
Sum<T> widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
    return sum_avx512<kLeaves, T>;
  }
  if (__builtin_cpu_supports("avx2")) {
    return sum_avx2<kLeaves, T>;
  }
#endif
  return sum_baseline<kLeaves, T>;
}

constexpr std::size_t kFastLeaves = 8;
/// Elements of many leaves at a time, whose sums of subtrees stay in the first-level cache.
constexpr std::size_t kChunk = 4 * kBlock;

/// For 1 to kFastLeaves of them.
template <typename T>
Sum<T> fast_sum(std::size_t leaves) {
  static const std::array<Sum<T>, kFastLeaves + 1> table = {nullptr,        widest<1, T>(), widest<2, T>(),
                                                            widest<3, T>(), widest<4, T>(), widest<5, T>(),
                                                            widest<6, T>(), widest<7, T>(), widest<8, T>()};
  return table[leaves];
}

/// More leaves than the registers hold: subtrees of kFastLeaves neighbours first, then the tree over their sums, which is the same tree.
template <typename T>
void sum_subtrees(const T* const* leaves, std::size_t count, T* out, std::size_t end, const std::byte* soon) {
  if (count <= kFastLeaves) {
    fast_sum<T>(count)(leaves, out, end, soon);
    return;
  }
  constexpr std::size_t kMaxSubtrees = kMaxLeaves / kFastLeaves;
  std::array<std::array<T, kChunk>, kMaxSubtrees> sums;
  std::array<const T*, kMaxSubtrees> at;
  std::size_t subtrees = 0;
  for (std::size_t first = 0; first < count; first += kFastLeaves, ++subtrees) {
    fast_sum<T>(std::min(kFastLeaves, count - first))(leaves + first, sums[subtrees].data(), end, nullptr);
    at[subtrees] = sums[subtrees].data();
  }
  sum_subtrees(at.data(), subtrees, out, end, soon);
}

/// Sums whole blocks; returns the number of elements that are done.
template <typename T>
std::size_t sum_blocks(std::span<const std::span<const T>> leaves, std::span<T> out, const std::byte* soon) {
  const std::size_t end = out.size() / kBlock * kBlock;
  const std::size_t chunk = leaves.size() <= kFastLeaves ? end : kChunk;
  std::array<const T*, kMaxLeaves> data;
  for (std::size_t begin = 0; begin < end; begin += chunk) {
    std::ranges::transform(leaves, data.begin(), [&](std::span<const T> leaf) { return leaf.data() + begin; });
    sum_subtrees(data.data(), leaves.size(), out.data() + begin, std::min(chunk, end - begin),
                 soon == nullptr ? nullptr : soon + begin * sizeof(T));
  }
  return end;
}

/// Elements [begin, size) one by one.
template <typename T>
void sum_rest(std::span<const std::span<const T>> leaves, std::span<T> out, std::size_t begin) {
  std::array<T, kMaxLeaves> partial;
  for (std::size_t i = begin; i < out.size(); ++i) {
    std::ranges::transform(leaves, partial.begin(), [i](std::span<const T> leaf) { return leaf[i]; });
    tree_fold(static_cast<int>(leaves.size()),
              [&](int into, int from) { partial[into] = add_in_tree(partial[into], partial[from]); });
    out[i] = partial[0];
  }
}

template <typename T>
void sum_tree(std::span<const std::span<const T>> leaves, std::span<T> out, const std::byte* soon) {
  check(!leaves.empty() && leaves.size() <= kMaxLeaves, "tree_sum: no leaves, or too many");
  for (const std::span<const T> leaf : leaves) {
    check(leaf.size() == out.size(), "tree_sum: leaves of different sizes");
  }
  const std::size_t done = sum_blocks(leaves, out, soon);
  if (done < out.size()) {
    sum_rest(leaves, out, done);
  }
}

}  // namespace

void tree_sum(std::span<const std::span<const float>> leaves, std::span<float> out, const std::byte* soon) {
  sum_tree(leaves, out, soon);
}

void tree_sum(std::span<const std::span<const BF16>> leaves, std::span<BF16> out, const std::byte* soon) {
  sum_tree(leaves, out, soon);
}

std::vector<TreeStep> tree_steps(int rank, int ranks) {
  std::vector<TreeStep> steps;
  for (int stride = 1; stride < ranks; stride *= 2) {
    const int mine = rank / stride * stride;
    const int sibling = mine ^ stride;
    const int my_size = std::min(stride, ranks - mine);
    const int sibling_size = std::min(stride, ranks - sibling);
    if (sibling_size <= 0) {
      continue;
    }
    // Only the upper block can be short. Its j-th rank serves the lower ranks j, j + size, j + 2 size, ...
    const int offset = rank - mine;
    TreeStep step{.source = sibling + offset % sibling_size, .source_is_upper = sibling > mine, .destinations = {}};
    for (int other = offset; other < sibling_size; other += my_size) {
      step.destinations.push_back(sibling + other);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace specdec
