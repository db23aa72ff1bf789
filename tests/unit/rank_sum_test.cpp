#include "backend/cuda/rank_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "parallel/gathered_sum.h"
#include "parallel/thread_communicator.h"
#include "parallel/tree.h"
#include "tests/support/emulated_device.h"
#include "tests/support/same_bits.h"

/// What a communicator on a device does with what it has gathered: the bits of tree_sum.
namespace specdec {
namespace {

using tests::same_bits;

template <typename T>
T random_element(std::mt19937& generator) {
  const bool negative_zero = generator() % 16 == 0;
  const auto mantissa = static_cast<float>(static_cast<std::int32_t>(generator())) * 0x1p-31F;
  const float value = negative_zero ? -0.0F : std::ldexp(mantissa, static_cast<int>(generator() % 24) - 12);
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return {float_to_bf16(value)};
  }
}

template <typename T>
std::vector<T> random_elements(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<T> elements(count);
  for (T& element : elements) {
    element = random_element<T>(generator);
  }
  return elements;
}

template <typename T>
std::vector<T> tree_of(const std::vector<T>& gathered, int ranks) {
  const std::size_t count = gathered.size() / ranks;
  std::vector<std::span<const T>> leaves;
  for (int r = 0; r < ranks; ++r) {
    leaves.push_back(std::span(gathered).subspan(r * count, count));
  }
  std::vector<T> sum(count);
  tree_sum(leaves, sum);
  return sum;
}

template <typename T>
void expect_tree(int ranks, std::size_t count) {
  const std::vector<T> gathered = random_elements<T>(ranks * count, static_cast<unsigned>(ranks * 1000 + count));
  std::vector<T> sum(count);
  EmulatedDevice device;
  cuda::launch_rank_sum(device, gathered.data(), ranks, std::ssize(sum), sum.data());
  EXPECT_TRUE(same_bits(sum, tree_of(gathered, ranks))) << ranks << " ranks, " << count << " of " << sizeof(T);
}

TEST(RankSum, HasTheTreesBits) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 13, 16, 33, 64}) {
    for (const std::size_t count : {1, 256, 300}) {
      expect_tree<float>(ranks, count);
      expect_tree<BF16>(ranks, count);
    }
  }
}

TEST(RankSum, OfNothingIsNothing) {
  EmulatedDevice device;
  cuda::launch_rank_sum<EmulatedDevice, float>(device, nullptr, 4, 0, nullptr);
}

TEST(RankSum, RefusesMoreRanksThanItHasPlacesFor) {
  EmulatedDevice device;
  float element = 0;
  EXPECT_THROW(cuda::launch_rank_sum(device, &element, cuda::kMostSummedRanks + 1, 1, &element), Error);
}

TEST(GatheredSum, PiecesFitTheScratch) {
  for (const int ranks : {2, 3, 5, 8, 16}) {
    for (const std::size_t scratch : {std::size_t{64} << 10, std::size_t{32} << 20}) {
      for (const std::size_t element : {2, 4}) {
        const std::size_t piece = gathered_elements(scratch, element, ranks);
        EXPECT_LE(piece * element * ranks, scratch);
        EXPECT_GT((piece + 64) * element * ranks, scratch);
        EXPECT_EQ(piece % 64, 0U);
      }
    }
  }
}

TEST(GatheredSum, RefusesAScratchWithoutRoom) {
  std::vector<float> data(1);
  std::vector<std::byte> scratch(64);
  EXPECT_THROW(reduce_gathered(
                   std::span(data), std::span(scratch), 4, [](auto, auto) {}, [](auto, auto) {}),
               Error);
}

/// As NcclCommunicator reduces, with another library to gather with.
template <typename T>
void expect_reduced(Communicator& group, std::size_t count, std::size_t pieces_of) {
  const auto mine = [&](int rank) { return random_elements<T>(count, static_cast<unsigned>(rank + 1)); };
  std::vector<T> data = mine(group.rank());
  std::vector<T> gathered;
  for (int r = 0; r < group.size(); ++r) {
    const std::vector<T> of_rank = mine(r);
    gathered.insert(gathered.end(), of_rank.begin(), of_rank.end());
  }
  std::vector<std::byte> scratch(pieces_of * sizeof(T) * group.size());
  EmulatedDevice device;
  std::size_t most = 0;
  reduce_gathered(
      std::span(data), std::span(scratch), group.size(),
      [&](std::span<const T> piece, T* all) {
        most = std::max(most, piece.size());
        group.all_gather(std::as_bytes(piece), std::as_writable_bytes(std::span(all, piece.size() * group.size())), {});
      },
      [&](const T* all, std::span<T> piece) {
        cuda::launch_rank_sum(device, all, group.size(), std::ssize(piece), piece.data());
      });
  EXPECT_LE(most, pieces_of);
  EXPECT_TRUE(same_bits(data, tree_of(gathered, group.size()))) << group.size() << " ranks, " << count << " elements";
}

TEST(GatheredSum, HasTheTreesBitsInPiecesOfAnySize) {
  for (const int ranks : {2, 3, 5, 8}) {
    run_ranks(ranks, [](Communicator& group) {
      for (const std::size_t count : {0, 1, 63, 64, 65, 200}) {
        expect_reduced<float>(group, count, 64);
        expect_reduced<BF16>(group, count, 128);
      }
    });
  }
}

}  // namespace
}  // namespace specdec
