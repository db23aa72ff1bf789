/// Ranks on threads whose passes are timed.
#include "runtime/timed_model.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>

#include "backend/cpu/thread_pool.h"
#include "models/random_tensors.h"
#include "tests/support/source_directory.h"

namespace specdec {
namespace {

class TimedRanksTest : public ::testing::Test {
 protected:
  TimedRanks::Make make() {
    return [this](Communicator& group, Backend& backend) {
      ++made;
      if (group.rank() == fails) throw std::runtime_error("no memory");
      return std::make_unique<TimedModel>(shape, std::make_unique<RandomTensors>(1), DType::kBF16, backend, 20, 4,
                                          group);
    };
  }

  const ModelConfig shape = load_model_config(tests::kSource / "assets/manpy-0.5m");
  const int cores = static_cast<int>(own_cores().size());
  std::atomic<int> made = 0;
  int fails = -1;
};

TEST_F(TimedRanksTest, AreAllThereWhereEachHasACore) {
  for (const int ranks : {1, 2, 4}) {
    made = 0;
    TimedRanks timed(ranks, cores, {}, make());
    EXPECT_EQ(made, ranks <= cores ? ranks : 1) << ranks;
    for (const std::size_t rows : {1, 4, 2}) EXPECT_GT(timed.pass(rows), 0) << ranks;
  }
}

TEST_F(TimedRanksTest, AreNotThereWhereTheJobsRanksShareCores) {
  TimedRanks timed(2, 1, {}, make());
  EXPECT_EQ(made, 1);
  EXPECT_GT(timed.pass(4), 0);
}

TEST_F(TimedRanksTest, GiveTheCallerItsCoresBack) {
  { const TimedRanks timed(2, cores, {}, make()); }
  EXPECT_EQ(static_cast<int>(own_cores().size()), cores);
}

TEST_F(TimedRanksTest, WhatKeepsOneFromBeingMadeEndsThemAll) {
  for (const int ranks : {2, 3}) {
    for (fails = 0; fails < std::min(ranks, cores); ++fails) {
      if (fails > 0 && ranks > cores) continue;
      EXPECT_THROW(TimedRanks(ranks, cores, {}, make()), std::runtime_error) << fails << " of " << ranks;
      EXPECT_EQ(static_cast<int>(own_cores().size()), cores);
    }
  }
}

}  // namespace
}  // namespace specdec
