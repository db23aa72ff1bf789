#include "runtime/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "backend/philox.h"

namespace specdec {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformTakes53BitsOfTheFirstTwoWords) {
  // 0x6627e8d5 followed by the upper 21 bits of 0xe169c58d, over 2^53.
  const double expected = static_cast<double>((std::uint64_t{0x6627e8d5} << 21) | (0xe169c58dU >> 11)) * 0x1p-53;
  EXPECT_EQ(uniform(RandomKey{}), expected);
}

TEST(Philox, EveryFieldOfTheKeyMatters) {
  const RandomKey base{0x0123456789abcdef, 3, 5, 7, 1, 2, Purpose::kAccept};
  std::vector<RandomKey> keys(10, base);
  keys[1].seed ^= 1;
  keys[2].seed ^= std::uint64_t{1} << 63;
  keys[3].sequence += 1;
  keys[4].round += 1;
  keys[5].position += 1;
  keys[6].level += 1;
  keys[7].branch += 1;
  keys[8].purpose = Purpose::kResample;
  keys[9].purpose = Purpose::kDraft;
  std::set<double> numbers;
  for (const RandomKey& key : keys) {
    numbers.insert(uniform(key));
    EXPECT_EQ(uniform(key), uniform(key));
  }
  EXPECT_EQ(numbers.size(), keys.size());
}

TEST(Philox, NoTwoKeysOfAGridShareANumber) {
  // Chance collisions among 2^15 numbers of 53 bits: probability 2^29 / 2^53 = 6e-8; a field that is dropped or
  // overlaps another makes thousands.
  std::set<double> numbers;
  std::size_t count = 0;
  for (std::uint32_t sequence = 0; sequence < 4; ++sequence) {
    for (std::uint32_t round = 0; round < 16; ++round) {
      for (std::uint32_t position = 0; position < 16; ++position) {
        for (std::uint8_t level = 0; level < 4; ++level) {
          for (std::uint8_t branch = 0; branch < 4; ++branch) {
            for (const auto purpose : {Purpose::kDraft, Purpose::kAccept}) {
              const double u = uniform({17, sequence, round, position, level, branch, purpose});
              ASSERT_GE(u, 0.0);
              ASSERT_LT(u, 1.0);
              numbers.insert(u);
              ++count;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(numbers.size(), count);
}

}  // namespace
}  // namespace specdec
