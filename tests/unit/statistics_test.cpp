/// What many noisy values are taken for.
#include "runtime/statistics.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/error.h"

namespace specdec {
namespace {

TEST(Statistics, TheMeanOfTheMiddleHalfLeavesOutAQuarterAtEitherEnd) {
  EXPECT_DOUBLE_EQ(midmean({7}), 7);
  EXPECT_DOUBLE_EQ(midmean({8, 2}), 5);
  EXPECT_DOUBLE_EQ(midmean({1, 3, 5, 1000}), 4);
  // Of five a quarter is one and a quarter of another: 0.75 of 2, 3 and 0.75 of 7, over two and a half.
  EXPECT_DOUBLE_EQ(midmean({1000, 3, 2, -1000, 7}), (0.75 * 2 + 3 + 0.75 * 7) / 2.5);
  EXPECT_DOUBLE_EQ(midmean({9, 1, 2, 3, 4, 5, 6, 1e9}), (3 + 4 + 5 + 6) / 4.0);
}

TEST(Statistics, TheQuickerHalfOfAnOddNumberHasHalfOfTheMiddleOne) {
  EXPECT_DOUBLE_EQ(quicker_half({7}), 7);
  EXPECT_DOUBLE_EQ(quicker_half({8, 2}), 2);
  EXPECT_DOUBLE_EQ(quicker_half({1000, 5, 1, 3}), 2);
  EXPECT_DOUBLE_EQ(quicker_half({9, 4, 1}), (1 + 0.5 * 4) / 1.5);
}

TEST(Statistics, WhatBelongsToValuesIsAveragedOverTheSameOfThem) {
  EXPECT_EQ(quicker_half_shares({1000, 5, 1, 3}), (std::vector<double>{0, 0, 0.5, 0.5}));
  EXPECT_EQ(quicker_half_shares({2, 2}), (std::vector<double>{1, 0}));
}

TEST(Statistics, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 9}), 3);
}

/// Half as fast from the middle of the third turn on: the medians are 11 and 20.
TEST(Statistics, RatiosOfWhatBelongsTogetherDoNotSeeAChangeOfPace) {
  EXPECT_EQ(median_ratio({11, 11, 11, 22, 22}, {10, 10, 20, 20, 20}), 1.1);
  EXPECT_THROW(median_ratio({1, 2}, {1}), Error);
  EXPECT_THROW(median_ratio({}, {}), Error);
}

}  // namespace
}  // namespace specdec
