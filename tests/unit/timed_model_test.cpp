/// Ranks on threads whose passes are timed.
#include "runtime/timed_model.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "backend/cpu/thread_pool.h"
#include "backend/error.h"
#include "models/random_tensors.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/source_directory.h"

namespace specdec {
namespace {

constexpr double kPassDeadline = 30;

/// Does something of its own before each sum.
class Troubled final : public tests::ForwardingCommunicator {
 public:
  Troubled(Communicator& inner, const std::function<void()>& trouble)
      : ForwardingCommunicator(inner), trouble_(trouble) {}
  void all_reduce(std::span<float> data, Stream stream) override {
    trouble_();
    ForwardingCommunicator::all_reduce(data, stream);
  }

 private:
  const std::function<void()>& trouble_;
};

class TimedRanksTest : public ::testing::Test {
 protected:
  TimedRanks::Make make() {
    return [this](Communicator& group, Backend& backend) {
      ++made;
      if (group.rank() == fails) throw std::runtime_error("no memory");
      return std::make_unique<TimedModel>(shape, std::make_unique<RandomTensors>(1), DType::kBF16, backend,
                                          std::vector<std::int64_t>{20, 40}, 4, group);
    };
  }

  /// Two ranks of which one has a trouble in its passes.
  void pass_with(int troubled, double deadline, const std::function<void()>& trouble) {
    std::unique_ptr<Troubled> between;  // of one rank alone
    TimedRanks timed(2, cores, {}, deadline, [&](Communicator& group, Backend& backend) {
      Communicator* mine = &group;
      if (group.rank() == troubled) mine = (between = std::make_unique<Troubled>(group, trouble)).get();
      return std::make_unique<TimedModel>(shape, std::make_unique<RandomTensors>(1), DType::kBF16, backend,
                                          std::vector<std::int64_t>{20}, 4, *mine);
    });
    timed.pass(1);
  }

  const ModelConfig shape = load_model_config(tests::kSource / "assets/manpy-0.5m");
  const int cores = static_cast<int>(own_cores().size());
  std::atomic<int> made = 0;
  int fails = -1;
};

TEST_F(TimedRanksTest, AreAllThereWhereEachHasACore) {
  for (const int ranks : {1, 2, 4}) {
    made = 0;
    TimedRanks timed(ranks, cores, {}, kPassDeadline, make());
    EXPECT_EQ(made, ranks <= cores ? ranks : 1) << ranks;
    for (const std::size_t rows : {1, 4, 2}) {
      EXPECT_GT(timed.pass(rows), 0) << ranks;
      EXPECT_GT(timed.pass(rows, 1), 0) << ranks;
    }
  }
}

TEST_F(TimedRanksTest, AreNotThereWhereTheJobsRanksShareCores) {
  TimedRanks timed(2, 1, {}, kPassDeadline, make());
  EXPECT_EQ(made, 1);
  EXPECT_GT(timed.pass(4), 0);
}

/// Of a pass the products are most, and not all.
TEST_F(TimedRanksTest, TellProductsFromTheRestOfAPass) {
  for (const int ranks : {1, 2}) {
    TimedRanks timed(ranks, cores, {}, kPassDeadline, make());
    for (const std::size_t rows : {4, 1}) {
      const double seconds = timed.pass(rows);
      EXPECT_GT(timed.beside_products().value(), 0) << ranks;
      EXPECT_LT(timed.beside_products().value(), seconds) << ranks;
    }
  }
}

TEST_F(TimedRanksTest, GiveTheCallerItsCoresBack) {
  { const TimedRanks timed(2, cores, {}, kPassDeadline, make()); }
  EXPECT_EQ(static_cast<int>(own_cores().size()), cores);
}

TEST_F(TimedRanksTest, WhatKeepsOneFromBeingMadeEndsThemAll) {
  for (const int ranks : {2, 3}) {
    for (fails = 0; fails < std::min(ranks, cores); ++fails) {
      if (fails > 0 && ranks > cores) continue;
      EXPECT_THROW(TimedRanks(ranks, cores, {}, kPassDeadline, make()), std::runtime_error) << fails << " of " << ranks;
      EXPECT_EQ(static_cast<int>(own_cores().size()), cores);
    }
  }
}

using TimedRanksDeathTest = TimedRanksTest;

/// Otherwise all would wait for ever.
TEST_F(TimedRanksDeathTest, ARankThatHangsEndsTheProcessInTime) {
  if (cores < 2) GTEST_SKIP() << "needs two cores";
  for (const int hangs : {0, 1}) {
    const auto hang = [] { std::this_thread::sleep_for(std::chrono::seconds(60)); };
    EXPECT_EXIT(pass_with(hangs, 0.5, hang), ::testing::ExitedWithCode(3),
                "error: rank " + std::to_string(hangs) +
                    " of 2 on threads has made no progress for 0\\.[5-9] s while others wait\n");
  }
}

TEST_F(TimedRanksDeathTest, ARankThatThrowsEndsTheProcessWithItsWord) {
  if (cores < 2) GTEST_SKIP() << "needs two cores";
  for (const int throws : {0, 1}) {
    const auto trouble = [] { throw_bad_input("weights: cut short"); };
    EXPECT_EXIT(pass_with(throws, kPassDeadline, trouble), ::testing::ExitedWithCode(2),
                "error: rank " + std::to_string(throws) + " on a thread: weights: cut short\n");
  }
}

/// It is no pass, and none of them meet in it.
TEST_F(TimedRanksTest, AreStirredWithoutAnythingToDo) {
  for (const int ranks : {1, 2}) {
    std::atomic<int> sums = 0;
    const std::function<void()> count = [&] { ++sums; };
    std::unique_ptr<Troubled> counts;
    TimedRanks timed(ranks, cores, {}, kPassDeadline, [&](Communicator& group, Backend& backend) {
      Communicator* mine = &group;
      if (group.rank() == 0) mine = (counts = std::make_unique<Troubled>(group, count)).get();
      return std::make_unique<TimedModel>(shape, std::make_unique<RandomTensors>(1), DType::kBF16, backend,
                                          std::vector<std::int64_t>{20}, 4, *mine);
    });
    const int of_prefill = sums;
    timed.stir();
    timed.stir();
    EXPECT_EQ(sums, of_prefill) << ranks;
    EXPECT_GT(timed.pass(2), 0) << ranks;
    EXPECT_GT(sums, of_prefill) << ranks;
  }
}

TEST_F(TimedRanksTest, ARankThatWaitsForWorkHasTime) {
  TimedRanks timed(2, cores, {}, 0.3, make());
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_GT(timed.pass(2), 0);
}

}  // namespace
}  // namespace specdec
