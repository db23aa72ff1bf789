#include "parallel/host_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/error.h"
#include "parallel/thread_communicator.h"

namespace specdec {
namespace {

cpu_set_t affinity() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  return cores;
}

/// The first `count` cores that this process may use.
cpu_set_t first_cores(int count) {
  const cpu_set_t all = affinity();
  cpu_set_t first;
  CPU_ZERO(&first);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&first) < count; ++core) {
    if (CPU_ISSET(core, &all)) {
      CPU_SET(core, &first);
    }
  }
  return first;
}

void use(const cpu_set_t& cores) { ASSERT_EQ(sched_setaffinity(0, sizeof cores, &cores), 0); }

/// What each of `ranks` threads may run on once the cores were dealt out; `before` says what each may at first.
std::vector<cpu_set_t> dealt_out(int ranks, bool wanted, const std::function<cpu_set_t(int)>& before) {
  std::vector<cpu_set_t> after(ranks);
  run_ranks(ranks, [&](Communicator& host) {
    use(before(host.rank()));
    deal_out_cores(host, wanted);
    after[host.rank()] = affinity();
  });
  return after;
}

TEST(HostCores, RanksThatShareCoresAreDealtOutInTurn) {
  const cpu_set_t two = first_cores(2);
  const int cores = CPU_COUNT(&two);
  const std::vector<cpu_set_t> after = dealt_out(5, true, [&](int) { return two; });
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(CPU_COUNT(&after[rank]), 1) << rank;
    EXPECT_TRUE(CPU_EQUAL(&after[rank], &after[rank % cores])) << rank;
  }
  if (cores == 2) {
    EXPECT_FALSE(CPU_EQUAL(&after[0], &after[1]));
  }
}

TEST(HostCores, WithACoreForEachTheSchedulerGoesOn) {
  const cpu_set_t two = first_cores(2);
  for (const cpu_set_t& cores : dealt_out(CPU_COUNT(&two), true, [&](int) { return two; })) {
    EXPECT_TRUE(CPU_EQUAL(&cores, &two));
  }
}

TEST(HostCores, WhoeverBoundTheRanksKnowsBetter) {
  const cpu_set_t one = first_cores(1);
  const cpu_set_t two = first_cores(2);
  const std::vector<cpu_set_t> after = dealt_out(5, true, [&](int rank) { return rank == 3 ? one : two; });
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_TRUE(CPU_EQUAL(&after[rank], rank == 3 ? &one : &two)) << rank;
  }
}

TEST(HostCores, NobodyIsBoundWhoDoesNotWantIt) {
  const cpu_set_t two = first_cores(2);
  for (const cpu_set_t& cores : dealt_out(5, false, [&](int) { return two; })) {
    EXPECT_TRUE(CPU_EQUAL(&cores, &two));
  }
}

TEST(HostCores, ACoreIsSharedEvenlyByThoseWhoMayRunOnIt) {
  const cpu_set_t one = first_cores(1);
  const cpu_set_t two = first_cores(2);
  const int cores = CPU_COUNT(&two);
  const auto shares = [](int ranks, const std::function<cpu_set_t(int)>& may) {
    std::vector<int> found(ranks);
    run_ranks(ranks, [&](Communicator& host) {
      use(may(host.rank()));
      found[host.rank()] = own_share_of_cores(host);
    });
    return found;
  };
  EXPECT_EQ(shares(1, [&](int) { return two; }), std::vector<int>{cores});
  EXPECT_EQ(shares(2, [&](int) { return two; }), (std::vector<int>{1, 1}));
  EXPECT_EQ(shares(5, [&](int) { return two; }), (std::vector<int>(5, 1))) << "at least one";
  EXPECT_EQ(shares(2, [&](int rank) { return rank == 0 ? one : two; }), (std::vector<int>{1, 1})) << "1/2 and 3/2";
}

TEST(HostCores, TheVariableIsAutoOrNone) {
  EXPECT_TRUE(pinning_wanted());
  setenv("SPECDEC_PIN", "none", 1);
  EXPECT_FALSE(pinning_wanted());
  setenv("SPECDEC_PIN", "auto", 1);
  EXPECT_TRUE(pinning_wanted());
  setenv("SPECDEC_PIN", "yes", 1);
  EXPECT_THROW(pinning_wanted(), Error);
  unsetenv("SPECDEC_PIN");
}

}  // namespace
}  // namespace specdec
