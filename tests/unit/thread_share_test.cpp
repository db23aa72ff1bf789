#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "backend/cpu/parallel_for.h"

namespace specdec {
namespace {

constexpr auto kNothing = [](int /*thread*/) {};

TEST(ShareOut, TakesEachUnitOnceInRunsOfAtMostAChunk) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (const std::int64_t units : {0, 1, 7, 100}) {
      for (const std::int64_t chunk : {1, 3, 8, 200}) {
        std::vector<std::atomic<int>> taken(static_cast<std::size_t>(units));
        std::atomic<int> longest = 0;
        share_out(pool, threads, units, chunk, kNothing, [&](int thread, std::int64_t begin, std::int64_t end, bool) {
          EXPECT_TRUE(thread >= 0 && thread < threads);
          longest = std::max(longest.load(), static_cast<int>(end - begin));
          for (std::int64_t unit = begin; unit < end; ++unit) {
            ++taken[static_cast<std::size_t>(unit)];
          }
        });
        for (const auto& times : taken) {
          EXPECT_EQ(times, 1) << threads << " threads, " << units << " units, chunks of " << chunk;
        }
        if (threads > 1) {
          EXPECT_LE(longest, chunk);
        }
      }
    }
  }
}

TEST(ShareOut, APartOfAnEarlierRoundIsTakenAnewByWhoeverComesFirst) {
  ThreadPool::Part part;
  EXPECT_EQ(part.take(1, 10, 15, 2), 10);
  EXPECT_EQ(part.take(1, 10, 15, 2), 12);
  EXPECT_EQ(part.take(1, 10, 15, 2), 14);
  EXPECT_EQ(part.take(1, 10, 15, 2), 15) << "none is left";
  EXPECT_EQ(part.take(1, 10, 15, 2), 15);
  EXPECT_EQ(part.take(2, 0, 3, 5), 0);
  EXPECT_EQ(part.take(2, 0, 3, 5), 3);
  EXPECT_EQ(part.take(3, 7, 7, 1), 7) << "an empty part";
  constexpr std::int64_t kMost = ThreadPool::Part::kMostUnits - 1;
  EXPECT_EQ(part.take((std::uint64_t{1} << 40) + 3, kMost - 1, kMost, 9), kMost - 1);
  EXPECT_EQ(part.take((std::uint64_t{1} << 40) + 3, kMost - 1, kMost, 9), kMost);
}

TEST(ShareOut, LeavesThreadsAloneThatAreNotWanted) {
  ThreadPool pool(4);
  share_out(pool, 2, 100, 1, kNothing, [&](int thread, std::int64_t, std::int64_t, bool) { EXPECT_LT(thread, 2); });
}

TEST(ShareOut, EachThreadGetsReadyOnceBeforeItsRuns) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(4);
    std::vector<int> ready(4, 0);
    share_out(
        pool, threads, 100, 1, [&](int thread) { ++ready[static_cast<std::size_t>(thread)]; },
        [&](int thread, std::int64_t, std::int64_t, bool) { EXPECT_EQ(ready[static_cast<std::size_t>(thread)], 1); });
    for (int thread = 0; thread < 4; ++thread) {
      EXPECT_EQ(ready[static_cast<std::size_t>(thread)], thread < threads ? 1 : 0) << thread << " of " << threads;
    }
  }
}

/// What a thread that is held up has not come to, the others do.
TEST(ShareOut, AThreadThatIsHeldUpHoldsUpNoMoreThanItsChunk) {
  constexpr int kThreads = 3;
  constexpr std::int64_t kUnits = 90;
  constexpr std::int64_t kChunk = 2;
  for (int held = 0; held < kThreads; ++held) {
    ThreadPool pool(kThreads);
    std::atomic<std::int64_t> done = 0;
    std::atomic<bool> gave_up = false;
    share_out(pool, kThreads, kUnits, kChunk, kNothing, [&](int thread, std::int64_t begin, std::int64_t end, bool) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (thread == held && done < kUnits - kChunk && !gave_up) {
        std::this_thread::yield();
        gave_up = std::chrono::steady_clock::now() > deadline;
      }
      done += end - begin;
    });
    EXPECT_FALSE(gave_up) << "thread " << held << ": the others left " << kUnits - kChunk - done << " units to it";
    EXPECT_EQ(done, kUnits);
  }
}

TEST(ShareOut, SaysToAThreadWhichRunEndsItsPart) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> ends(kThreads, -1);
    share_out(pool, kThreads, 103, 3, kNothing, [&](int thread, std::int64_t begin, std::int64_t end, bool last) {
      if (last) {
        EXPECT_GE(begin, 103 * thread / kThreads);
        EXPECT_EQ(ends[static_cast<std::size_t>(thread)], -1);
        ends[static_cast<std::size_t>(thread)] = end;
      }
    });
    for (int thread = 0; thread < kThreads; ++thread) {
      const std::int64_t end = ends[static_cast<std::size_t>(thread)];
      EXPECT_TRUE(end == -1 || end == 103 * (thread + 1) / kThreads) << "thread " << thread << ", " << end;
    }
  }
  std::int64_t alone = -1;
  share_out(pool, 1, 103, 3, kNothing,
            [&](int, std::int64_t, std::int64_t end, bool last) { alone = last ? end : -1; });
  EXPECT_EQ(alone, 103);
}

}  // namespace
}  // namespace specdec
