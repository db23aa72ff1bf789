#include "backend/cuda/device_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/error.h"
#include "tests/support/bad_input.h"

namespace specdec {
namespace {

std::vector<int> choices(int ranks, int devices, bool share = false) {
  std::vector<int> chosen;
  for (int rank = 0; rank < ranks; ++rank) {
    chosen.push_back(choose_device({.local_rank = rank, .local_ranks = ranks, .share = share}, devices));
  }
  return chosen;
}

std::string refusal(const CudaOptions& options, int devices) {
  return tests::bad_input([&] { choose_device(options, devices); });
}

TEST(DeviceChoice, EveryRankOfAHostHasAGpuOfItsOwn) {
  EXPECT_EQ(choices(1, 1), (std::vector{0}));
  EXPECT_EQ(choices(4, 4), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(choices(2, 8), (std::vector{0, 1}));
}

TEST(DeviceChoice, SharingTakesThemInTurn) {
  EXPECT_EQ(choices(5, 2, true), (std::vector{0, 1, 0, 1, 0}));
  EXPECT_EQ(choices(3, 1, true), (std::vector{0, 0, 0}));
  EXPECT_EQ(choices(2, 8, true), (std::vector{0, 1}));
}

TEST(DeviceChoice, MoreRanksThanGpusMustBeToldToShare) {
  EXPECT_EQ(refusal({.local_rank = 0, .local_ranks = 3}, 2),
            "backend: found \"cuda\" with 3 ranks on a host and 2 GPUs, expected at most one rank a GPU, or "
            "parallel.share_gpus=true");
  // Every rank of the host says so, also those that a device is left for.
  EXPECT_EQ(refusal({.local_rank = 0, .local_ranks = 2}, 1), refusal({.local_rank = 1, .local_ranks = 2}, 1));
  EXPECT_NE(refusal({.local_rank = 0, .local_ranks = 2}, 1).find("1 GPU,"), std::string::npos);
}

TEST(DeviceChoice, NoGpuIsRefusedEvenToThoseThatWouldShare) {
  for (const bool share : {false, true}) {
    EXPECT_EQ(refusal({.local_rank = 0, .local_ranks = 1, .share = share}, 0),
              "backend: found \"cuda\" where no GPU is visible, expected at least one");
  }
}

TEST(DeviceChoice, ARankIsOneOfThoseOfItsHost) {
  for (const int rank : {-1, 2}) {
    try {
      choose_device({.local_rank = rank, .local_ranks = 2}, 8);
      FAIL() << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    }
  }
}

}  // namespace
}  // namespace specdec
