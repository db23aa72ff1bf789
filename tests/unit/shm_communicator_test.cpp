// The shm transport with threads in the place of processes, so that the thread sanitizer sees both sides of every hand-over.

#include "parallel/shm_communicator.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>

#include "tests/support/communicator_battery.h"
#include "tests/support/shm_ranks.h"

namespace specdec {
namespace {

using Way = std::optional<ShmReduction>;
constexpr int kShared = 1;  // cores: fewer than ranks
constexpr int kOwn = 64;

class ShmCommunicator : public ::testing::TestWithParam<std::tuple<int, Way, int>> {
 protected:
  static void run(const std::function<void(Communicator&)>& body) {
    const auto [ranks, way, cores] = GetParam();
    tests::run_over_shm(ranks, {.cores = cores, .reduction = way}, body);
  }
};

constexpr std::size_t kSeveralPieces = 1 << 20;  // several pieces

TEST_P(ShmCommunicator, SumsHaveTheBitsOfTheTree) {
  run([](Communicator& group) { battery::expect_sums(group, kSeveralPieces); });
}

TEST_P(ShmCommunicator, MovesBytes) {
  run([](Communicator& group) { battery::expect_moves(group, 300'000); });
}

TEST_P(ShmCommunicator, OperationsInAnyOrder) {
  run([](Communicator& group) { battery::expect_any_order(group, 600, kSeveralPieces); });
}

TEST(ShmPastCaches, SumsHaveTheBitsOfTheTreeEitherWay) {
  for (const bool past_caches : {false, true}) {
    for (const int ranks : {2, 3}) {
      const auto one_shot = ShmReduction::kOneShot;
      tests::run_over_shm(ranks, {.cores = kShared, .reduction = one_shot, .past_caches = past_caches},
                          [](Communicator& group) {
                            battery::expect_sums(group, kSeveralPieces);
                            battery::expect_any_order(group, 600, kSeveralPieces);
                          });
    }
  }
}

TEST(ShmSteps, WrapAround) {
  for (const auto way : {ShmReduction::kCombine, ShmReduction::kOneShot, ShmReduction::kTwoShot}) {
    for (const int ranks : {2, 5}) {
      tests::run_over_shm(ranks, {.cores = kShared, .reduction = way, .first_step = 0xffffffffU - 40},
                          [](Communicator& group) { battery::expect_any_order(group, 200, 1 << 16); });
    }
  }
}

std::string name(const ::testing::TestParamInfo<std::tuple<int, Way, int>>& info) {
  const auto [ranks, way, cores] = info.param;
  const std::string by = !way                             ? "any"
                         : *way == ShmReduction::kCombine ? "combine"
                         : *way == ShmReduction::kOneShot ? "one_shot"
                                                          : "two_shot";
  return "ranks" + std::to_string(ranks) + "_" + by + (cores == kShared ? "_shared_cores" : "_own_cores");
}

INSTANTIATE_TEST_SUITE_P(All, ShmCommunicator,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 8),
                                            ::testing::Values(Way{ShmReduction::kCombine}, Way{ShmReduction::kOneShot},
                                                              Way{ShmReduction::kTwoShot}),
                                            ::testing::Values(kShared)),
                         name);
INSTANTIATE_TEST_SUITE_P(SharedCores, ShmCommunicator,
                         ::testing::Combine(::testing::Values(3, 8), ::testing::Values(Way{}),
                                            ::testing::Values(kShared)),
                         name);
INSTANTIATE_TEST_SUITE_P(OwnCores, ShmCommunicator,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::Values(Way{}), ::testing::Values(kOwn)),
                         name);

}  // namespace
}  // namespace specdec
