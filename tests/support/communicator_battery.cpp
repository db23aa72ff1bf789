#include "tests/support/communicator_battery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "parallel/tree.h"

namespace specdec::battery {
namespace {

constexpr std::size_t kSizes[] = {0,  1,    2,    3,    7,     8,     15,    16,      17,      63,      64,
                                  65, 1000, 4096, 5003, 30011, 65536, 65537, 200'003, 1 << 20, 16 << 20};

std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

template <typename T>
T convert(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return {float_to_bf16(value)};
  }
}

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t bits(BF16 value) { return value.bits; }

/// What `rank` contributes: signs and magnitudes differ, so that every order of summation has other bits; some elements are -0.0
/// everywhere.
template <typename T>
T random_element(int rank, std::size_t i, unsigned seed) {
  if (i % 17 == 3) {
    return convert<T>(-0.0F);
  }
  const std::uint64_t word = mix((std::uint64_t{seed} << 48) ^ (static_cast<std::uint64_t>(rank) << 40) ^ i);
  const auto mantissa = static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-31F;
  return convert<T>(std::ldexp(mantissa, static_cast<int>(word >> 40U) % 24 - 12));
}

/// Small integers, so that every order of summation is exact, also in bf16 (8 significant bits).
template <typename T>
T crafted_element(int rank, std::size_t i) {
  return convert<T>(static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 13));
}

template <typename T>
T tree_of(int ranks, const auto& element) {
  std::vector<T> leaves(ranks);
  for (int r = 0; r < ranks; ++r) {
    leaves[r] = element(r);
  }
  tree_fold(ranks, [&](int into, int from) { leaves[into] = add_in_tree(leaves[into], leaves[from]); });
  return leaves[0];
}

template <typename T>
std::vector<T> reduced(Communicator& group, std::size_t size, const auto& element) {
  std::vector<T> data(size);
  for (std::size_t i = 0; i < size; ++i) {
    data[i] = element(group.rank(), i);
  }
  group.all_reduce(std::span(data), Stream{});
  return data;
}

/// Every element of a small payload, some of a large one: the reference costs as many steps an element as there are ranks.
template <typename T>
void expect_tree_of_random(Communicator& group, std::size_t size, unsigned seed) {
  const auto element = [seed](int rank, std::size_t i) { return random_element<T>(rank, i, seed); };
  const std::vector<T> found = reduced<T>(group, size, element);
  const std::size_t step = size <= 100'000 ? 1 : 61;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < size; i += step) {
    wrong += bits(found[i]) == bits(tree_of<T>(group.size(), [&](int r) { return element(r, i); })) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U) << group.transport() << ", " << size << " elements of " << sizeof(T) << " bytes on rank "
                       << group.rank();
}

template <typename T>
void expect_sum_of_crafted(Communicator& group, std::size_t size) {
  const std::vector<T> found =
      reduced<T>(group, size, [](int rank, std::size_t i) { return crafted_element<T>(rank, i); });
  constexpr std::size_t kPeriod = 13;
  std::array<std::uint32_t, kPeriod> expected{};
  for (std::size_t i = 0; i < kPeriod; ++i) {
    expected[i] = bits(tree_of<T>(group.size(), [&](int r) { return crafted_element<T>(r, i); }));
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < size; ++i) {
    wrong += bits(found[i]) == expected[i % kPeriod] ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U) << group.transport() << ", " << size << " elements of " << sizeof(T) << " bytes on rank "
                       << group.rank();
}

template <typename Check>
void for_sizes(std::size_t largest_bytes, std::size_t element_bytes, Check&& check_size) {
  for (const std::size_t size : kSizes) {
    if (size * element_bytes <= largest_bytes) {
      check_size(size);
    }
  }
}

std::byte pattern(int rank, std::size_t i, unsigned seed) {
  return static_cast<std::byte>(mix(i * 31 + static_cast<std::size_t>(rank) + seed * 1000003ULL));
}

std::vector<std::byte> patterns(int rank, std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = pattern(rank, i, seed);
  }
  return bytes;
}

bool holds_all(std::span<const std::byte> all, int ranks, unsigned seed) {
  const std::size_t each = all.size() / ranks;
  for (int r = 0; r < ranks; ++r) {
    if (!std::ranges::equal(all.subspan(each * r, each), patterns(r, each, seed))) {
      return false;
    }
  }
  return true;
}

void expect_all_gather(Communicator& group, std::size_t size, unsigned seed, bool in_place) {
  std::vector<std::byte> all(size * group.size());
  const std::vector<std::byte> apart = patterns(group.rank(), size, seed);
  std::span<const std::byte> mine = apart;
  if (in_place) {
    const std::span<std::byte> part = std::span(all).subspan(size * group.rank(), size);
    std::ranges::copy(apart, part.begin());
    mine = part;
  }
  group.all_gather(mine, all, Stream{});
  EXPECT_TRUE(holds_all(all, group.size(), seed)) << group.transport() << ", all_gather of " << size;
}

void expect_gather(Communicator& group, std::size_t size, int root, unsigned seed, bool in_place) {
  const bool here = group.rank() == root;
  std::vector<std::byte> all(here ? size * group.size() : 0);
  const std::vector<std::byte> apart = patterns(group.rank(), size, seed);
  std::span<const std::byte> mine = apart;
  if (here && in_place) {
    const std::span<std::byte> part = std::span(all).subspan(size * root, size);
    std::ranges::copy(apart, part.begin());
    mine = part;
  }
  group.gather(mine, all, root, Stream{});
  if (here) {
    EXPECT_TRUE(holds_all(all, group.size(), seed)) << group.transport() << ", gather of " << size << " to " << root;
  }
}

void expect_broadcast(Communicator& group, std::size_t size, int root, unsigned seed) {
  std::vector<std::byte> data = patterns(group.rank(), size, seed);
  group.broadcast(data, root, Stream{});
  EXPECT_TRUE(data == patterns(root, size, seed)) << group.transport() << ", broadcast of " << size << " from " << root;
}

}  // namespace

void expect_sums(Communicator& group, std::size_t largest_bytes) {
  // Random values are dear to make and to check: a few megabytes of them, beyond that crafted ones.
  const std::size_t largest_random = std::min(largest_bytes, std::size_t{4} << 20);
  unsigned seed = 1;
  for_sizes(largest_random, sizeof(float),
            [&](std::size_t size) { expect_tree_of_random<float>(group, size, ++seed); });
  for_sizes(largest_random, sizeof(BF16), [&](std::size_t size) { expect_tree_of_random<BF16>(group, size, ++seed); });
  expect_exact_sums(group, largest_bytes);
}

void expect_exact_sums(Communicator& group, std::size_t largest_bytes) {
  for_sizes(largest_bytes, sizeof(float), [&](std::size_t size) { expect_sum_of_crafted<float>(group, size); });
  for_sizes(largest_bytes, sizeof(BF16), [&](std::size_t size) { expect_sum_of_crafted<BF16>(group, size); });
}

void expect_moves(Communicator& group, std::size_t largest_bytes) {
  unsigned seed = 100;
  for_sizes(largest_bytes, 1, [&](std::size_t size) {
    for (const bool in_place : {false, true}) {
      expect_all_gather(group, size, ++seed, in_place);
      for (int root = 0; root < group.size(); ++root) {
        expect_gather(group, size, root, ++seed, in_place);
      }
    }
    for (int root = 0; root < group.size(); ++root) {
      expect_broadcast(group, size, root, ++seed);
    }
    group.barrier();
  });
}

void expect_any_order(Communicator& group, int operations, std::size_t largest_bytes) {
  std::mt19937 shared(7);  // the same decisions on every rank
  std::mt19937 own(static_cast<unsigned>(group.rank()) + 1);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(shared()) % n; };
  for (int i = 0; i < operations; ++i) {
    const auto seed = static_cast<unsigned>(i);
    // Mostly small, sometimes large; sizes around the pieces of a transport come by themselves.
    const std::size_t size = below(10) == 0 ? below(largest_bytes) : below(2000);
    const int root = static_cast<int>(below(group.size()));
    if (own() % 16 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
    }
    switch (below(7)) {
      case 0:
        expect_tree_of_random<float>(group, size / sizeof(float), seed);
        break;
      case 1:
        expect_tree_of_random<BF16>(group, size / sizeof(BF16), seed);
        break;
      case 2:
        expect_all_gather(group, size / group.size(), seed, false);
        break;
      case 3:
        expect_gather(group, size / group.size(), root, seed, false);
        break;
      case 4:
      case 5:
        expect_broadcast(group, size, root, seed);
        break;
      default:
        group.barrier();
    }
  }
}

}  // namespace specdec::battery
