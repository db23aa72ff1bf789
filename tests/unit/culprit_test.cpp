#include "parallel/culprit.h"

#include <gtest/gtest.h>

#include <vector>

namespace specdec {
namespace {

constexpr double kDeadline = 30.0;

/// A rank that has just shown progress.
RankStatus well(int rank, std::uint64_t round, std::uint64_t collective, RankState state) {
  RankStatus status;
  status.rank = rank;
  status.progress = {.ticks = 1, .round = round, .collective = collective, .state = state};
  return status;
}

RankStatus stalled(RankStatus status, double seconds) {
  status.stall = seconds;
  return status;
}

void expect_culprit(const std::vector<RankStatus>& ranks, int rank, FailureCause cause) {
  const std::optional<Culprit> found = find_culprit(ranks, kDeadline);
  ASSERT_TRUE(found.has_value());
  const Culprit culprit = found.value_or(Culprit{});
  EXPECT_EQ(culprit.rank, rank);
  EXPECT_EQ(culprit.cause, cause);
}

TEST(Culprit, NobodyWhileAllGoOn) {
  EXPECT_FALSE(find_culprit({}, kDeadline));
  const std::vector<RankStatus> ranks{well(0, 3, 40, RankState::kComputing), well(1, 3, 41, RankState::kWaiting)};
  EXPECT_FALSE(find_culprit(ranks, kDeadline));
}

TEST(Culprit, TheFirstThatDied) {
  std::vector<RankStatus> ranks{well(0, 3, 40, RankState::kWaiting), well(1, 3, 40, RankState::kWaiting),
                                well(2, 1, 2, RankState::kComputing)};
  ranks[2].silence = ranks[2].stall = 100;
  ranks[0].lost = ranks[1].lost = true;
  ranks[0].lost_age = 0.1;
  ranks[1].lost_age = 0.2;
  expect_culprit(ranks, 1, FailureCause::kDied);
}

TEST(Culprit, WhoLeavesMayCloseItsSocketAndBeSilent) {
  std::vector<RankStatus> ranks{well(0, 3, 40, RankState::kComputing), well(1, 3, 40, RankState::kLeaving)};
  ranks[1].lost = true;
  ranks[1].lost_age = ranks[1].silence = ranks[1].stall = 1000;
  EXPECT_FALSE(find_culprit(ranks, kDeadline));
}

TEST(Culprit, TheSilentOneEvenWhenAllWaitAlike) {
  // A stopped rank may have been stopped inside the collective in which the others wait for it.
  std::vector<RankStatus> ranks;
  ranks.reserve(4);
  for (int r = 0; r < 4; ++r) {
    ranks.push_back(stalled(well(r, 5, 90, RankState::kWaiting), 31));
  }
  ranks[2].silence = 30.5;
  expect_culprit(ranks, 2, FailureCause::kSilent);
}

TEST(Culprit, TheLeastAdvancedThatStandsStill) {
  std::vector<RankStatus> ranks{stalled(well(0, 5, 91, RankState::kWaiting), 31),
                                stalled(well(1, 5, 90, RankState::kComputing), 31),
                                stalled(well(2, 5, 91, RankState::kWaiting), 31)};
  expect_culprit(ranks, 1, FailureCause::kStalled);
  // Inside collective 91 is behind having left it; the round counts first.
  ranks[0] = stalled(well(0, 5, 91, RankState::kComputing), 31);
  ranks[1] = stalled(well(1, 5, 91, RankState::kWaiting), 31);
  expect_culprit(ranks, 1, FailureCause::kStalled);
  ranks[1] = stalled(well(1, 4, 200, RankState::kComputing), 31);
  expect_culprit(ranks, 1, FailureCause::kStalled);
}

TEST(Culprit, WhoStandsStillAndDoesNotAnswerIsSilent) {
  std::vector<RankStatus> ranks{well(0, 5, 91, RankState::kWaiting),
                                stalled(well(1, 5, 90, RankState::kComputing), 30.1)};
  ranks[1].silence = 29.9;
  expect_culprit(ranks, 1, FailureCause::kSilent);
  ranks[1].silence = 0.1;
  expect_culprit(ranks, 1, FailureCause::kStalled);
}

TEST(Culprit, WhoWaitsForARankThatDoesNotAnswerIsNotToBlame) {
  // Rank 2 was stopped in collective 91 just after a heartbeat, in which rank 1 has yet to leave 90.
  std::vector<RankStatus> ranks{stalled(well(0, 5, 91, RankState::kWaiting), 30.1),
                                stalled(well(1, 5, 90, RankState::kWaiting), 30.2),
                                stalled(well(2, 5, 91, RankState::kWaiting), 30.1)};
  ranks[0].silence = ranks[1].silence = 0.1;
  ranks[2].silence = 29.9;
  expect_culprit(ranks, 2, FailureCause::kSilent);
  ranks[2].silence = 0.2;
  expect_culprit(ranks, 1, FailureCause::kStalled);
  // One that computes is what the others wait for, whoever else does not answer.
  ranks[1] = stalled(well(1, 5, 90, RankState::kComputing), 30.2);
  ranks[1].silence = 0.1;
  ranks[2].silence = 29.9;
  expect_culprit(ranks, 1, FailureCause::kStalled);
}

TEST(Culprit, TheDeadlineCountsFromTheAwaitedRanksLastProgress) {
  // Others have waited for a minute, but rank 1's prefill goes on.
  std::vector<RankStatus> ranks{stalled(well(0, 1, 10, RankState::kWaiting), 60),
                                stalled(well(1, 1, 9, RankState::kComputing), 29)};
  EXPECT_FALSE(find_culprit(ranks, kDeadline));
  ranks[1].stall = 30.1;
  expect_culprit(ranks, 1, FailureCause::kStalled);
}

TEST(Culprit, ARankThatIsJustBeingFreedIsNotToBlame) {
  // Rank 1 has come at last and has left collective 10 already; the word that rank 0 has too is still under way.
  std::vector<RankStatus> ranks{stalled(well(0, 1, 10, RankState::kWaiting), 60),
                                stalled(well(1, 1, 10, RankState::kComputing), 0.05)};
  EXPECT_FALSE(find_culprit(ranks, kDeadline));
  ranks[1].stall = 31;
  expect_culprit(ranks, 0, FailureCause::kStalled);
  // It may even have come to the end of the program meanwhile.
  ranks[1] = stalled(well(1, 2, 12, RankState::kLeaving), 0.05);
  EXPECT_FALSE(find_culprit(ranks, kDeadline));
}

TEST(Culprit, NobodyWaitsNobodyIsLate) {
  const std::vector<RankStatus> ranks{stalled(well(0, 1, 10, RankState::kComputing), 500),
                                      stalled(well(1, 1, 10, RankState::kComputing), 500)};
  EXPECT_FALSE(find_culprit(ranks, kDeadline));
}

TEST(Culprit, WhoLeavesWaitsForTheOthers) {
  const std::vector<RankStatus> ranks{well(0, 9, 10, RankState::kLeaving),
                                      stalled(well(1, 9, 10, RankState::kComputing), 31)};
  expect_culprit(ranks, 1, FailureCause::kStalled);
}

TEST(Culprit, WhoWaitsForWorkIsNotLateButMayDie) {
  std::vector<RankStatus> ranks{stalled(well(0, 5, 91, RankState::kWaiting), 31),
                                stalled(well(1, 5, 90, RankState::kComputing), 31),
                                stalled(well(2, 4, 3, RankState::kIdle), 31)};
  expect_culprit(ranks, 1, FailureCause::kStalled);
  ranks[2].lost = true;
  expect_culprit(ranks, 2, FailureCause::kDied);
  // Nobody owes it work.
  ranks = {stalled(well(0, 5, 91, RankState::kComputing), 31), stalled(well(1, 4, 3, RankState::kIdle), 31)};
  EXPECT_FALSE(find_culprit(ranks, kDeadline));
  // While it computes, it is awaited as any other is.
  ranks = {stalled(well(0, 5, 91, RankState::kWaiting), 31), stalled(well(1, 4, 3, RankState::kComputing), 31)};
  expect_culprit(ranks, 1, FailureCause::kStalled);
}

TEST(Progress, CollectivesOfSomeRanksSayNothingOfHowFarOneHasCome) {
  Progress progress;
  { const InCollective of_all(progress); }
  const std::uint64_t before = progress.snapshot().collective;
  {
    const AsideCollectives aside(progress);
    const InCollective of_two(progress);
    EXPECT_EQ(progress.snapshot().state, RankState::kWaiting);
  }
  {
    const AsideCollectives aside(progress, true);
    const InCollective of_two(progress);
    EXPECT_EQ(progress.snapshot().state, RankState::kIdle);
  }
  EXPECT_EQ(progress.snapshot().collective, before);
  { const InCollective of_all(progress); }
  EXPECT_EQ(progress.snapshot().collective, before + 1);
  EXPECT_EQ(progress.snapshot().state, RankState::kComputing);
}

TEST(OddRanks, WhoDisagreesWithRankZero) {
  EXPECT_EQ(odd_ranks(std::vector<int>{2}, 4), (std::vector<int>{2}));
  EXPECT_EQ(odd_ranks(std::vector<int>{1, 3}, 4), (std::vector<int>{1, 3}));
}

TEST(OddRanks, RankZeroWhenAllOthersDisagree) {
  EXPECT_EQ(odd_ranks(std::vector<int>{1, 2, 3}, 4), (std::vector<int>{0}));
  EXPECT_EQ(odd_ranks(std::vector<int>{1, 2}, 3), (std::vector<int>{0}));
  EXPECT_EQ(odd_ranks(std::vector<int>{1}, 2), (std::vector<int>{1})) << "one against one: its word against rank 0's";
}

TEST(OddRanks, RankZeroWhenItDisagreesWithItself) {
  EXPECT_EQ(odd_ranks(std::vector<int>{0}, 1), (std::vector<int>{0}));
  EXPECT_EQ(odd_ranks(std::vector<int>{0, 2}, 4), (std::vector<int>{0}));
}

TEST(Progress, OnlyTheOutermostCollectiveCounts) {
  Progress progress;
  {
    const InCollective outer(progress);
    EXPECT_EQ(progress.snapshot().collective, 1U);
    {
      const InCollective inner(progress);
      EXPECT_EQ(progress.snapshot().collective, 1U);
    }
    EXPECT_EQ(progress.snapshot().state, RankState::kWaiting);
  }
  EXPECT_EQ(progress.snapshot().state, RankState::kComputing);
  const InCollective next(progress);
  EXPECT_EQ(progress.snapshot().collective, 2U);
}

}  // namespace
}  // namespace specdec
