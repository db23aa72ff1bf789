// The mpi transport against the definition of the tree and against the threads transport: the same bits.

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "mpi_test.h"
#include "parallel/agree.h"
#include "parallel/mpi_communicator.h"
#include "parallel/thread_communicator.h"
#include "parallel/timed_communicator.h"
#include "parallel/tree.h"

namespace specdec {
namespace {

using mpi_test::session;

/// Bit for bit, naming the first element that differs.
testing::AssertionResult same_bits(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) {
    return testing::AssertionFailure() << found.size() << " elements, expected " << expected.size();
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      return testing::AssertionFailure() << "of " << found.size() << " elements, number " << i << " is " << found[i]
                                         << ", expected " << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

/// What rank `rank` contributes: the same on whichever rank it is computed. Magnitudes differ, so that every order of summation has other
/// bits, and some elements are -0.0 everywhere.
std::vector<float> contribution(int rank, std::size_t size, unsigned seed) {
  std::mt19937 generator(seed * 1000 + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    const float value = std::ldexp(normal(generator), exponent(generator));
    values[i] = i % 17 == 3 ? -0.0F : value;
  }
  return values;
}

std::vector<float> expected_sum(int ranks, std::size_t size, unsigned seed) {
  std::vector<std::vector<float>> all;
  all.reserve(ranks);
  for (int r = 0; r < ranks; ++r) {
    all.push_back(contribution(r, size, seed));
  }
  const std::vector<std::span<const float>> leaves(all.begin(), all.end());
  std::vector<float> sum(size);
  tree_sum(leaves, sum);
  return sum;
}

std::vector<float> threads_sum(int ranks, std::size_t size, unsigned seed) {
  std::vector<float> sum;
  run_ranks(ranks, [&](Communicator& group) {
    std::vector<float> data = contribution(group.rank(), size, seed);
    group.all_reduce(data, {});
    if (group.rank() == 0) {
      sum = data;
    }
  });
  return sum;
}

constexpr std::size_t kSizes[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 1000, 4096, 5003, 30011};

TEST(MpiCommunicator, SumsHaveTheBitsOfTheTreeAndOfThreads) {
  const auto world = session().world("mpi");
  ASSERT_EQ(world->size(), session().size());
  for (const std::size_t size : kSizes) {
    std::vector<float> data = contribution(world->rank(), size, 1);
    world->all_reduce(data, {});
    EXPECT_TRUE(same_bits(data, expected_sum(world->size(), size, 1)));
    if (world->rank() == 0) {
      EXPECT_TRUE(same_bits(data, threads_sum(world->size(), size, 1)));
    }
  }
}

TEST(MpiCommunicator, SmallAndLargePayloadsTakeDifferentWaysToTheSameBits) {
  std::unique_ptr<Communicator> ways[2];
  // A threshold of 0 halves every payload, also those with fewer elements than ranks; one that is out of reach halves none.
  const int world = session().world_handle();
  ways[0] = std::make_unique<MpiCommunicator>(world, MpiReduction::kTree, session().progress(), 0);
  ways[1] = std::make_unique<MpiCommunicator>(world, MpiReduction::kTree, session().progress(), SIZE_MAX);
  for (const std::size_t size : kSizes) {
    const std::vector<float> expected = expected_sum(session().size(), size, 2);
    for (const auto& way : ways) {
      std::vector<float> data = contribution(session().rank(), size, 2);
      way->all_reduce(data, {});
      EXPECT_TRUE(same_bits(data, expected));
    }
  }
}

TEST(MpiCommunicator, LargePayloadByDefault) {
  const auto world = session().world("mpi");
  const std::size_t size = 3 * MpiCommunicator::kLargeBytes / sizeof(float) + 5;
  std::vector<float> data = contribution(world->rank(), size, 3);
  world->all_reduce(data, {});
  EXPECT_TRUE(same_bits(data, expected_sum(world->size(), size, 3)));
}

TEST(MpiCommunicator, ExactSumsOfCraftedIntegers) {
  for (const char* transport : {"auto", "mpi", "mpi-fast"}) {
    const auto world = session().world(transport);
    const int n = world->size();
    const int ranks_sum = n * (n + 1) / 2;
    std::vector<float> data(5000);
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<float>((world->rank() + 1) * static_cast<int>(i % 1000));
    }
    world->all_reduce(data, {});
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], static_cast<float>(ranks_sum * static_cast<int>(i % 1000))) << transport << " " << i;
    }
  }
}

TEST(MpiCommunicator, NegativeZeroIsTheIdentity) {
  const auto world = session().world("mpi");
  std::vector<float> data(100, -0.0F);
  if (world->rank() == world->size() - 1) {
    data[1] = 1.5F;
  }
  world->all_reduce(data, {});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(data[0]), 0x80000000U);
  EXPECT_EQ(data[1], 1.5F);
}

TEST(MpiCommunicator, GathersAndBroadcastsInRankOrder) {
  for (const char* transport : {"auto", "mpi"}) {
    const auto world = session().world(transport);
    const int n = world->size();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1001}, std::size_t{300000}}) {
      const std::vector<std::byte> mine(size, std::byte(world->rank() + 1));
      std::vector<std::byte> expected;
      for (int r = 0; r < n; ++r) {
        expected.insert(expected.end(), size, std::byte(r + 1));
      }
      std::vector<std::byte> all(size * n);
      world->all_gather(mine, all, {});
      EXPECT_EQ(all, expected);
      for (int root = 0; root < n; ++root) {
        std::vector<std::byte> gathered(world->rank() == root ? size * n : 0);
        world->gather(mine, gathered, root, {});
        EXPECT_EQ(gathered, world->rank() == root ? expected : std::vector<std::byte>{});
        std::vector<std::byte> data = mine;
        world->broadcast(data, root, {});
        EXPECT_EQ(data, std::vector<std::byte>(size, std::byte(root + 1)));
      }
    }
    world->barrier();
  }
}

TEST(MpiCommunicator, SubgroupsAreGroupsOfTheirOwn) {
  // Rank 0 stays out; the others are cut in two, as a dedicated draft rank and later pipelines would do it.
  const int rank = session().rank();
  const auto group = session().split("auto", rank == 0 ? -1 : rank % 2);
  if (rank == 0) {
    EXPECT_EQ(group, nullptr);
    return;
  }
  int members = 0;
  float sum = 0;
  for (int r = 1; r < session().size(); ++r) {
    if (r % 2 == rank % 2) {
      ++members;
      sum += static_cast<float>(r);
    }
  }
  ASSERT_EQ(group->size(), members);
  EXPECT_EQ(group->rank(), (rank - 1) / 2);
  auto data = static_cast<float>(rank);
  group->all_reduce({&data, 1}, {});
  EXPECT_EQ(data, sum);
}

TEST(MpiSession, RefusesUnknownTransports) {
  try {
    session().world("nccl2");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.what()).find("nccl2, expected auto, self, shm, hier, mpi or mpi-fast"),
              std::string::npos);
  }
  if (session().size() > 1) {
    EXPECT_THROW(session().world("self"), Error);
  } else {
    EXPECT_EQ(session().world("auto")->transport(), "self");
  }
}

TEST(Agree, AllRanksThrowTheErrorOfTheLowestRankThatFailed) {
  const auto world = session().world("auto");
  const int culprit = world->size() / 2;
  try {
    agree(*world, [&] {
      if (world->rank() >= culprit) {
        throw_bad_input("file-" + std::to_string(world->rank()) + ": not there");
      }
    });
    FAIL() << "no error";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_EQ(error.what(), "file-" + std::to_string(culprit) + ": not there");
  }
  EXPECT_EQ(agree(*world, [&] { return 10 + world->rank(); }), 10 + world->rank());
}

TEST(Agree, StringsTravel) {
  const auto world = session().world("auto");
  for (const std::string& text : {std::string(), std::string("decode:\n  k: 4\n"), std::string(100000, 'x')}) {
    std::string mine = world->rank() == 0 ? text : "something else";
    broadcast_string(*world, mine);
    EXPECT_EQ(mine, text);
  }
}

TEST(TimedCommunicator, CountsWhatPasses) {
  const auto world = session().world("auto");
  TimedCommunicator timed(*world);
  std::vector<float> data(10, 1.0F);
  timed.all_reduce(data, {});
  timed.all_reduce(data, {});
  std::vector<std::byte> bytes(7);
  timed.broadcast(bytes, 0, {});
  timed.barrier();
  EXPECT_EQ(data[0], static_cast<float>(world->size() * world->size()));
  EXPECT_EQ(timed.totals().all_reduce.calls, 2);
  EXPECT_EQ(timed.totals().all_reduce.bytes, 80);
  EXPECT_GT(timed.totals().all_reduce.seconds, 0);
  EXPECT_EQ(timed.totals().broadcast.calls, 1);
  EXPECT_EQ(timed.totals().broadcast.bytes, 7);
  EXPECT_EQ(timed.totals().barrier.calls, 1);
  EXPECT_EQ(timed.totals().gather.calls, 0);
  EXPECT_EQ(timed.transport(), world->transport());
}

}  // namespace
}  // namespace specdec
