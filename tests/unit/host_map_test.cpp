#include "parallel/host_map.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace specdec {
namespace {

using Hosts = std::vector<int>;

TEST(HostMap, RunsAreTheLargestThatNoHostBreaks) {
  EXPECT_EQ(common_run(Hosts{0}), 1);
  EXPECT_EQ(common_run(Hosts{0, 0, 0}), 4);
  EXPECT_EQ(common_run(Hosts{0, 0, 1, 1}), 2);
  EXPECT_EQ(common_run(Hosts{0, 0, 0, 0, 4}), 4);
  EXPECT_EQ(common_run(Hosts{0, 0, 0, 3, 3, 3}), 1);
  EXPECT_EQ(common_run(Hosts{0, 0, 0, 0, 4, 4, 6, 6}), 2);
  EXPECT_EQ(common_run(Hosts{0, 1, 0, 1}), 1);
}

TEST(HostMap, AutoTakesTheFastestThatSuits) {
  EXPECT_EQ(choose_transport(Hosts{0}, 256), "self");
  EXPECT_EQ(choose_transport(Hosts{0, 0, 0, 0, 0}, 256), "shm");
  EXPECT_EQ(choose_transport(Hosts{0, 0, 2, 2, 4, 4}, 256), "hier");
  EXPECT_EQ(choose_transport(Hosts{0, 0, 0, 3, 3, 3}, 256), "mpi");
  EXPECT_EQ(choose_transport(Hosts{0, 1}, 256), "mpi");
}

TEST(HostMap, MoreRanksThanShareMemoryAreRunsOfAHost) {
  EXPECT_EQ(choose_transport(Hosts(256, 0), 256), "shm");
  EXPECT_EQ(choose_transport(Hosts(257, 0), 256), "hier");
  EXPECT_EQ(choose_transport(Hosts{0, 0, 0}, 2), "hier");
}

TEST(HostMap, RanksOfAHostAreCountedWhereverTheyStand) {
  const std::vector<std::string> hosts = {"a", "b", "a", "b", "b"};
  const std::vector<std::pair<int, int>> expected = {{0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  for (int rank = 0; rank < 5; ++rank) {
    const LocalRank local = local_rank(hosts, rank);
    EXPECT_EQ(std::pair(local.rank, local.ranks), expected[rank]) << rank;
  }
}

TEST(HostMap, CountsHosts) { EXPECT_EQ(count_hosts(Hosts{0, 1, 0, 1, 4}), 3); }

}  // namespace
}  // namespace specdec
