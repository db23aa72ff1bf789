#include "parallel/thread_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <latch>
#include <string>
#include <vector>

#include "backend/error.h"
#include "parallel/agree.h"
#include "parallel/self_communicator.h"
#include "tests/support/communicator_battery.h"

namespace specdec {
namespace {

class ThreadCommunicator : public testing::TestWithParam<int> {};

constexpr std::size_t kLargestPayload = 200'000;

TEST_P(ThreadCommunicator, SumsHaveTheBitsOfTheTree) {
  run_ranks(GetParam(), [](Communicator& group) {
    EXPECT_EQ(group.size(), GetParam());
    battery::expect_sums(group, kLargestPayload);
  });
}

TEST_P(ThreadCommunicator, MovesBytes) {
  run_ranks(GetParam(), [](Communicator& group) { battery::expect_moves(group, kLargestPayload); });
}

TEST_P(ThreadCommunicator, OperationsInAnyOrder) {
  run_ranks(GetParam(), [](Communicator& group) { battery::expect_any_order(group, 500, kLargestPayload); });
}

TEST_P(ThreadCommunicator, OneRankThatThrowsDoesNotHangTheOthers) {
  const int ranks = GetParam();
  for (int culprit = 0; culprit < ranks; ++culprit) {
    try {
      run_ranks(ranks, [&](Communicator& group) {
        group.barrier();
        if (group.rank() == culprit) {
          throw_bad_input("rank " + std::to_string(culprit) + " gives up");
        }
        group.barrier();
        group.barrier();
      });
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "rank " + std::to_string(culprit) + " gives up");
    }
  }
}

TEST_P(ThreadCommunicator, OneRankThatReturnsEarlyDoesNotHangTheOthers) {
  const int ranks = GetParam();
  const auto body = [](Communicator& group) {
    group.barrier();
    if (group.rank() != 0) {
      group.barrier();
    }
  };
  if (ranks == 1) {
    EXPECT_NO_THROW(run_ranks(ranks, body));
  } else {
    EXPECT_THROW(run_ranks(ranks, body), Error);
  }
}

TEST_P(ThreadCommunicator, AgreeThrowsTheSameErrorEverywhere) {
  const int ranks = GetParam();
  std::vector<std::string> messages(ranks);
  run_ranks(ranks, [&](Communicator& group) {
    EXPECT_EQ(agree(group, [&] { return std::string("fine"); }), "fine");
    try {
      agree(group, [&] {
        if (group.rank() % 2 == 1 || group.size() == 1) {
          throw_bad_input("broken on rank " + std::to_string(group.rank()));
        }
      });
      messages[group.rank()] = "no error";
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      messages[group.rank()] = error.what();
    }
  });
  EXPECT_EQ(messages, std::vector<std::string>(ranks, ranks == 1 ? "broken on rank 0" : "broken on rank 1"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadCommunicator, testing::Values(1, 2, 3, 4, 5, 8));

TEST(ThreadCommunicatorDeadline, ARankThatNeverComesEndsTheWait) {
  // Rank 1 comes only after rank 0 has given up; it is told too.
  std::latch given_up(1);
  std::vector<std::string> messages(2);
  const auto body = [&](Communicator& group) {
    if (group.rank() == 1) {
      given_up.wait();
    }
    try {
      group.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kPeerFailed);
      messages[group.rank()] = error.what();
    }
    if (group.rank() == 0) {
      given_up.count_down();
    }
  };
  EXPECT_NO_THROW(run_ranks(2, body, std::chrono::milliseconds(50)));
  const std::string expected = "threads: 1 of 2 ranks did not come to a collective within 50 ms";
  EXPECT_EQ(messages, std::vector<std::string>(2, expected));
}

TEST(SelfCommunicator, IsFreeAndASignOfLife) {
  Progress progress;
  SelfCommunicator self(progress);
  std::vector<float> data{-0.0F, 1.0F, NAN};
  self.all_reduce(data, {});
  EXPECT_TRUE(std::signbit(data[0]) && data[1] == 1.0F && std::isnan(data[2]));
  const std::vector<std::byte> mine{std::byte{1}, std::byte{2}};
  std::vector<std::byte> all(2);
  self.all_gather(mine, all, {});
  EXPECT_EQ(all, mine);
  EXPECT_GT(progress.snapshot().ticks, 0U);
  EXPECT_EQ(progress.snapshot().state, RankState::kComputing);
}

}  // namespace
}  // namespace specdec
