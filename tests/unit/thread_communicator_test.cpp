#include "parallel/thread_communicator.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <random>
#include <string>
#include <vector>

#include "backend/error.h"
#include "parallel/agree.h"
#include "parallel/self_communicator.h"
#include "parallel/tree.h"

namespace specdec {
namespace {

std::vector<float> contribution(int rank, std::size_t size) {
  std::mt19937 generator(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    const float value = std::ldexp(normal(generator), static_cast<int>(generator() % 24));
    values[i] = i % 17 == 3 ? -0.0F : value;
  }
  return values;
}

class ThreadCommunicator : public testing::TestWithParam<int> {};

TEST_P(ThreadCommunicator, SumsHaveTheBitsOfTheTree) {
  const int ranks = GetParam();
  for (const std::size_t size : {0, 1, 2, 7, 8, 65, 1000, 30011}) {
    std::vector<std::vector<float>> all;
    all.reserve(ranks);
    for (int r = 0; r < ranks; ++r) {
      all.push_back(contribution(r, size));
    }
    const std::vector<std::span<const float>> leaves(all.begin(), all.end());
    std::vector<float> expected(size);
    tree_sum(leaves, expected);
    std::vector<std::vector<float>> results(ranks);
    run_ranks(ranks, [&](Communicator& group) {
      std::vector<float> data = contribution(group.rank(), size);
      group.all_reduce(data, {});
      results[group.rank()] = data;
    });
    for (int r = 0; r < ranks; ++r) {
      ASSERT_EQ(results[r].size(), size);
      EXPECT_EQ(size == 0 ? 0 : std::memcmp(results[r].data(), expected.data(), size * sizeof(float)), 0)
          << "rank " << r << " of " << ranks << ", size " << size;
    }
  }
}

TEST_P(ThreadCommunicator, GathersAndBroadcastsInRankOrder) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](Communicator& group) {
    EXPECT_EQ(group.size(), ranks);
    for (const std::size_t size : {0, 1, 777}) {
      const std::vector<std::byte> mine(size, std::byte(group.rank() + 1));
      std::vector<std::byte> expected;
      for (int r = 0; r < ranks; ++r) {
        expected.insert(expected.end(), size, std::byte(r + 1));
      }
      std::vector<std::byte> all(size * ranks);
      group.all_gather(mine, all, {});
      EXPECT_EQ(all, expected);
      for (int root = 0; root < ranks; ++root) {
        std::vector<std::byte> gathered(group.rank() == root ? size * ranks : 0);
        group.gather(mine, gathered, root, {});
        EXPECT_EQ(gathered, group.rank() == root ? expected : std::vector<std::byte>{});
        std::vector<std::byte> data = mine;
        group.broadcast(data, root, {});
        EXPECT_EQ(data, std::vector<std::byte>(size, std::byte(root + 1)));
      }
      group.barrier();
    }
  });
}

TEST_P(ThreadCommunicator, ManySmallCollectivesInARow) {
  const int ranks = GetParam();
  const int ranks_sum = ranks * (ranks - 1) / 2;
  run_ranks(ranks, [&](Communicator& group) {
    for (int i = 0; i < 200; ++i) {
      auto value = static_cast<float>(group.rank() + i);
      group.all_reduce({&value, 1}, {});
      ASSERT_EQ(value, static_cast<float>(ranks_sum + ranks * i));
    }
  });
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
