// How the benchmarks tell moments apart in which cores are near each other from those in which they are far.
#include <gtest/gtest.h>

#include <vector>

#include "tests/bench/places.h"

namespace specdec {
namespace {

using Repeats = std::vector<std::size_t>;

TEST(Places, NoMomentsAreNoPlace) {
  EXPECT_TRUE(places_of({}).empty());
  EXPECT_TRUE(places_of({{30e-9, 0}, {160e-9}}).empty());
}

TEST(Places, AlikeAreOne) {
  const std::vector<Place> places = places_of({{30e-9, 58e-9}, {55e-9}, {31e-9}, {60e-9}});
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].repeats, (Repeats{0, 1, 2, 3}));
  EXPECT_EQ(places[0].least_seconds, 30e-9);
  EXPECT_EQ(places[0].most_seconds, 60e-9);
}

TEST(Places, ArePartedWhereMostVarianceGoesAndWhatMovedIsInNeither) {
  // Moments on the way from one to the other leave no gap.
  const std::vector<Place> places =
      places_of({{160e-9, 170e-9}, {30e-9, 40e-9}, {50e-9, 155e-9}, {65e-9, 100e-9}, {150e-9, 165e-9}, {55e-9, 60e-9}});
  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0].repeats, (Repeats{1, 5}));
  EXPECT_EQ(places[1].repeats, (Repeats{0, 4}));
  EXPECT_EQ(places[1].least_seconds, 150e-9);
  EXPECT_EQ(places[1].most_seconds, 170e-9);
}

TEST(Places, ACoreThatWasAwayForOnceLeavesTheOthersTogether) {
  std::vector<std::vector<double>> seconds(50, {30e-9, 31e-9});
  seconds[7] = {30e-9, 40e-6};
  const std::vector<Place> places = places_of(seconds);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].repeats.size(), 49U);
}

TEST(Places, TakenAreThoseOfThem) {
  EXPECT_EQ(taken(std::vector<double>{5, 6, 7}, {0, 2}), (std::vector<double>{5, 7}));
  EXPECT_EQ(taken(std::vector<double>(), {0, 2}), std::vector<double>());
}

}  // namespace
}  // namespace specdec
