// What the battery (conformance_test.cpp) does not cover: the mpi transport's two ways, parts of a job, and what is built on a communicator.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mpi_test.h"
#include "parallel/agree.h"
#include "parallel/mpi_communicator.h"
#include "parallel/timed_communicator.h"
#include "tests/support/communicator_battery.h"

namespace specdec {
namespace {

using mpi_test::session;

// A threshold of 0 halves every payload, also those with fewer elements than ranks; one that is out of reach halves none.
TEST(MpiCommunicator, SmallAndLargePayloadsTakeDifferentWaysToTheSameBits) {
  for (const std::size_t threshold : {std::size_t{0}, SIZE_MAX}) {
    MpiCommunicator way(session().world_handle(), MpiReduction::kTree, session().progress(), threshold);
    battery::expect_sums(way, 1 << 18);
  }
}

TEST(MpiSession, RefusesUnknownTransports) {
  try {
    session().world("nccl2");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(
        std::string(error.what()).find("nccl2, expected auto, self, shm, hier, mpi, mpi-fast, nccl, nccl-fast or ipc"),
        std::string::npos);
  }
  if (session().size() > 1) {
    EXPECT_THROW(session().world("self"), Error);
  } else {
    EXPECT_EQ(session().world("auto")->transport(), "self");
  }
}

class Over : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Communicator> world_ = session().world(GetParam());
};

TEST_P(Over, SubgroupsAreGroupsOfTheirOwn) {
  // Rank 0 stays out; the others are cut in two, as a dedicated draft rank and later pipelines would do it.
  const int rank = session().rank();
  const auto group = session().split(GetParam(), rank == 0 ? -1 : rank % 2);
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
  battery::expect_any_order(*group, 100, 1 << 16);
}

TEST_P(Over, AgreeingRanksThrowTheErrorOfTheLowestRankThatFailed) {
  const int culprit = world_->size() / 2;
  try {
    agree(*world_, [&] {
      if (world_->rank() >= culprit) {
        throw_bad_input("file-" + std::to_string(world_->rank()) + ": not there");
      }
    });
    FAIL() << "no error";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_EQ(error.what(), "file-" + std::to_string(culprit) + ": not there");
  }
  EXPECT_EQ(agree(*world_, [&] { return 10 + world_->rank(); }), 10 + world_->rank());
}

TEST_P(Over, StringsTravel) {
  for (const std::string& text : {std::string(), std::string("decode:\n  k: 4\n"), std::string(100000, 'x')}) {
    std::string mine = world_->rank() == 0 ? text : "something else";
    broadcast_string(*world_, mine);
    EXPECT_EQ(mine, text);
  }
}

TEST_P(Over, TimedCountsWhatPasses) {
  TimedCommunicator timed(*world_);
  std::vector<float> data(10, 1.0F);
  timed.all_reduce(data, {});
  timed.all_reduce(data, {});
  std::vector<std::byte> bytes(7);
  timed.broadcast(bytes, 0, {});
  timed.barrier();
  EXPECT_EQ(data[0], static_cast<float>(world_->size() * world_->size()));
  EXPECT_EQ(timed.totals().all_reduce.calls, 2);
  EXPECT_EQ(timed.totals().all_reduce.bytes, 80);
  EXPECT_GT(timed.totals().all_reduce.seconds, 0);
  EXPECT_EQ(timed.totals().broadcast.calls, 1);
  EXPECT_EQ(timed.totals().broadcast.bytes, 7);
  EXPECT_EQ(timed.totals().barrier.calls, 1);
  EXPECT_EQ(timed.totals().gather.calls, 0);
  EXPECT_EQ(timed.transport(), world_->transport());
}

INSTANTIATE_TEST_SUITE_P(Transport, Over, testing::Values("auto", "hier", "mpi"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace specdec
