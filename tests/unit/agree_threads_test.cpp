#include "runtime/agree_threads.h"

#include <gtest/gtest.h>

#include <string>

#include "parallel/thread_communicator.h"

namespace specdec {
namespace {

/// Rank 1 of three has the fewest cores.
int cores_of_rank(int rank) { return rank == 1 ? 2 : 4; }

AgreedThreads agreed(Communicator& group, std::optional<int> asked) {
  return agree_on_threads(group, asked, cores_of_rank(group.rank()), "parallel.threads");
}

TEST(AgreeOnThreads, ByDefaultAsManyAsEveryRankHasCoresFor) {
  run_ranks(3, [](Communicator& group) {
    const AgreedThreads auto_threads = agreed(group, std::nullopt);
    EXPECT_EQ(auto_threads.threads, 2);
    EXPECT_EQ(auto_threads.note, "");
  });
}

TEST(AgreeOnThreads, WhoeverAsksGetsWhatWasAskedFor) {
  run_ranks(3, [](Communicator& group) {
    EXPECT_EQ(agreed(group, 1).threads, 1);
    EXPECT_EQ(agreed(group, 1).note, "");
    EXPECT_EQ(agreed(group, 2).note, "");
    EXPECT_EQ(agreed(group, 3).threads, 3);
  });
}

TEST(AgreeOnThreads, MoreThanThereAreCoresForIsSaid) {
  run_ranks(3, [](Communicator& group) {
    const std::string note = agreed(group, 3).note;
    EXPECT_EQ(note.substr(0, note.find(" has")), "parallel.threads: found 3, expected at most 2: rank 1");
  });
}

}  // namespace
}  // namespace specdec
