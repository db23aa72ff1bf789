#include "parallel/start_guard.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace specdec {
namespace {

using std::chrono::milliseconds;

constexpr const char* kRank = "OMPI_COMM_WORLD_RANK";

TEST(StartGuardDeathTest, SpeaksForTheRankThatWasLaunched) {
  EXPECT_EXIT(
      {
        setenv(kRank, "0", 1);
        const StartGuard guard("specdec_dist", milliseconds(50));
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      ::testing::ExitedWithCode(3), "specdec_dist: error: rank 0 on .* has waited for MPI to start for 0.05 s");
}

/// MPI's start adds to the environment, which moves it: a thread that read it meanwhile crashed one start of some hundreds.
TEST(StartGuardDeathTest, ReadsNothingOfTheEnvironmentWhileMpiStarts) {
  EXPECT_EXIT(
      {
        setenv(kRank, "0", 1);
        const StartGuard guard("specdec_dist", milliseconds(50));
        setenv(kRank, "3", 1);
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      ::testing::ExitedWithCode(3), "rank 0 on");
}

TEST(StartGuardDeathTest, IsQuietOnceMpiHasStarted) {
  EXPECT_EXIT(
      {
        { const StartGuard guard("specdec_dist", milliseconds(200)); }
        std::this_thread::sleep_for(milliseconds(500));
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace specdec
