#include "runtime/round.h"

#include <gtest/gtest.h>

#include "backend/error.h"
#include "parallel/disagreement.h"
#include "parallel/self_communicator.h"
#include "parallel/thread_communicator.h"

namespace specdec {
namespace {

/// Several rounds in a row, longer and shorter ones, as rank 0 sends them.
std::vector<Round> some_rounds() {
  return {{.action = RoundAction::kBegin,
           .sequence = 7,
           .number = 0,
           .kept = 0,
           .count = 3,
           .interconnect = 2,
           .together = true,
           .rows = {}},
          {.action = RoundAction::kScore,
           .sequence = 7,
           .number = 1,
           .kept = 2,
           .count = 3,
           .rows = {{.token = 11, .parent = -1, .q = 0},
                    {.token = 12, .parent = 0, .q = 0.25F},
                    {.token = 13, .parent = 1, .q = 1}}},
          {.action = RoundAction::kScore, .sequence = 7, .number = 2, .kept = 3, .count = 3, .rows = {{.token = 14}}},
          {.action = RoundAction::kEnd, .rows = {}}};
}

void expect_same(const Round& found, const Round& expected) {
  EXPECT_EQ(found.action, expected.action);
  EXPECT_EQ(found.sequence, expected.sequence);
  EXPECT_EQ(found.number, expected.number);
  EXPECT_EQ(found.kept, expected.kept);
  EXPECT_EQ(found.count, expected.count);
  EXPECT_EQ(found.interconnect, expected.interconnect);
  EXPECT_EQ(found.together, expected.together);
  ASSERT_EQ(found.rows.size(), expected.rows.size());
  for (std::size_t i = 0; i < expected.rows.size(); ++i) {
    EXPECT_EQ(found.rows[i].token, expected.rows[i].token);
    EXPECT_EQ(found.rows[i].parent, expected.rows[i].parent);
    EXPECT_EQ(found.rows[i].q, expected.rows[i].q);
  }
}

TEST(RoundChannel, CarriesWhatRankZeroSays) {
  run_ranks(3, [](Communicator& group) {
    Progress progress;
    RoundChannel channel(group, progress, 2);
    Round round;
    std::uint64_t exchanged = 0;
    for (const Round& expected : some_rounds()) {
      if (channel.is_root()) {
        round = expected;
      }
      channel.exchange(round);
      expect_same(round, expected);
      EXPECT_EQ(progress.snapshot().round, ++exchanged) << "the watchdog sees how far the job is";
    }
  });
}

TEST(RoundChannel, EveryRankHearsThatASequenceBegins) {
  run_ranks(3, [](Communicator& group) {
    Progress progress;
    RoundChannel channel(group, progress, 2);
    std::vector<std::int32_t> begun;
    channel.on_begin([&](const Round& round) { begun.push_back(round.interconnect); });
    Round round;
    for (const Round& expected : some_rounds()) {
      if (channel.is_root()) {
        round = expected;
      }
      channel.exchange(round);
      EXPECT_TRUE(begun.empty()) << "before anybody could have checked the round";
      if (round.action == RoundAction::kBegin) {
        std::vector<Token> prompt(static_cast<std::size_t>(round.count));
        channel.exchange_prompt(round, prompt);
        EXPECT_EQ(std::exchange(begun, {}), std::vector<std::int32_t>{2});
      }
    }
  });
}

TEST(RoundChannel, CarriesThePrompt) {
  run_ranks(2, [](Communicator& group) {
    Progress progress;
    RoundChannel channel(group, progress, 0);
    std::vector<Token> prompt(3);
    if (channel.is_root()) {
      prompt = {5, 0, 7};
    }
    channel.exchange_prompt({.action = RoundAction::kBegin}, prompt);
    EXPECT_EQ(prompt, (std::vector<Token>{5, 0, 7}));
  });
}

TEST(RoundChannel, RefusesMoreThanItsMessageHolds) {
  SelfCommunicator self;
  Progress progress;
  RoundChannel channel(self, progress, 1);
  Round round = some_rounds()[1];
  EXPECT_THROW(channel.exchange(round), Error);
}

TEST(RoundChannel, ARankThatDraftedSomethingElseIsFoundOutAtTheNextMessage) {
  for (const RoundAction next : {RoundAction::kScore, RoundAction::kBegin, RoundAction::kEnd}) {
    for (const bool astray : {false, true}) {
      run_ranks(2, [&](Communicator& group) {
        Progress progress;
        RoundChannel channel(group, progress, 2);
        Round round;
        const auto exchange = [&](const Round& sent) {
          if (channel.is_root()) round = sent;
          channel.exchange(round);
        };
        exchange({.action = RoundAction::kScore, .together = true, .rows = {{.token = 5}, {.token = -1}}});
        round.rows[1].token = astray && !channel.is_root() ? 7 : 6;
        channel.filled(round);
        const bool thrown = [&] {
          try {
            exchange({.action = next, .rows = {}});
          } catch (const Disagreement&) {
            return true;
          }
          return false;
        }();
        EXPECT_EQ(thrown, astray && !channel.is_root());
        // It holds for one message.
        if (!thrown && !astray) exchange({.action = RoundAction::kEnd, .rows = {}});
      });
    }
  }
}

}  // namespace
}  // namespace specdec
