#include "backend/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/error.h"

namespace specdec {
namespace {

TEST(ThreadPool, CallsEachThreadOnceARound) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<int> calls(static_cast<std::size_t>(threads));
    constexpr int kRounds = 500;
    for (int round = 0; round < kRounds; ++round) {
      pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
    }
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(threads), kRounds));
  }
}

TEST(ThreadPool, TheCallerIsThreadZero) {
  ThreadPool pool(2);
  std::vector<std::thread::id> ids(2);
  pool.run([&](int thread) { ids[static_cast<std::size_t>(thread)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], std::this_thread::get_id());
}

TEST(ThreadPool, WakesATeamThatWentToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::vector<int> calls(3);
    // Slow workers, so that the caller sleeps too.
    pool.run([&](int thread) {
      std::this_thread::sleep_for(std::chrono::milliseconds(thread));
      calls[static_cast<std::size_t>(thread)] = 1;
    });
    EXPECT_EQ(calls, std::vector<int>(3, 1));
  }
}

TEST(ThreadPool, WorkersFlushSubnormals) {
  flush_subnormals_to_zero();
  ThreadPool pool(3);
  std::vector<float> results(3, 1.0F);
  pool.run([&](int thread) {
    volatile float tiny = 1e-30F;
    volatile float subnormal = 1e-40F;
    // The product is subnormal; the second factor is one already.
    results[static_cast<std::size_t>(thread)] = tiny * 1e-10F + subnormal * 1e20F;
  });
  EXPECT_EQ(results, std::vector<float>(3, 0.0F));
}

/// On which cores each thread of a pool may run.
std::vector<cpu_set_t> cores_of_threads(int threads, ThreadPool::Pin pin) {
  ThreadPool pool(threads, pin);
  std::vector<cpu_set_t> cores(static_cast<std::size_t>(threads));
  pool.run([&](int thread) { sched_getaffinity(0, sizeof(cpu_set_t), &cores[static_cast<std::size_t>(thread)]); });
  return cores;
}

TEST(ThreadPool, ThreadsThatAreAsManyAsCoresGetOneEach) {
  cpu_set_t own;
  CPU_ZERO(&own);
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  const int count = CPU_COUNT(&own);
  const std::vector<cpu_set_t> bound = cores_of_threads(count, ThreadPool::Pin::kToOwnCores);
  cpu_set_t together;
  CPU_ZERO(&together);
  for (int thread = 1; thread < count; ++thread) {
    EXPECT_EQ(CPU_COUNT(&bound[thread]), 1) << thread;
    CPU_OR(&together, &together, &bound[thread]);
  }
  EXPECT_EQ(CPU_COUNT(&together), count - 1) << "two on one core";
  EXPECT_TRUE(CPU_EQUAL(&bound.front(), &own)) << "the caller is nobody's to bind";
  for (const cpu_set_t& cores : cores_of_threads(count, ThreadPool::Pin::kNone)) {
    EXPECT_TRUE(CPU_EQUAL(&cores, &own));
  }
  for (const cpu_set_t& cores : cores_of_threads(count + 1, ThreadPool::Pin::kToOwnCores)) {
    EXPECT_TRUE(CPU_EQUAL(&cores, &own));
  }
}

TEST(ThreadPool, TheCoreThatTheCallerIsOnIsNoWorkers) {
  using Cores = std::vector<int>;
  EXPECT_EQ(cores_of_team({0, 1}, 2, 0), Cores({0, 1}));
  EXPECT_EQ(cores_of_team({0, 1}, 2, 1), Cores({1, 0}));
  EXPECT_EQ(cores_of_team({3, 5, 8, 9}, 4, 8), Cores({8, 5, 3, 9}));
  EXPECT_EQ(cores_of_team({3, 5, 8}, 3, 7), Cores({3, 5, 8})) << "a caller whose core is not known";
  EXPECT_EQ(cores_of_team({6}, 1, 6), Cores({6}));
  EXPECT_EQ(cores_of_team({0, 1, 2}, 2, 0), Cores()) << "cores of other ranks";
  EXPECT_EQ(cores_of_team({0, 1}, 3, 0), Cores()) << "too few";
}

TEST(ThreadPool, AWorkerMakesRoomForTheCaller) {
  cpu_set_t own;
  CPU_ZERO(&own);
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  const int count = CPU_COUNT(&own);
  ThreadPool pool(count, ThreadPool::Pin::kToOwnCores);
  for (const int core : own_cores()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    std::vector<cpu_set_t> cores(static_cast<std::size_t>(count));
    pool.run([&](int thread) {
      CPU_ZERO(&cores[thread]);
      sched_getaffinity(0, sizeof(cpu_set_t), &cores[thread]);
    });
    cpu_set_t together = one;
    for (int thread = 1; thread < count; ++thread) {
      EXPECT_EQ(CPU_COUNT(&cores[thread]), 1);
      CPU_OR(&together, &together, &cores[thread]);
    }
    EXPECT_TRUE(CPU_EQUAL(&together, &own)) << "each core is somebody's, " << core << " the caller's";
    ASSERT_EQ(sched_setaffinity(0, sizeof own, &own), 0);
  }
}

// A sanitizer's own memory would be under the same limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, SaysWhenThreadsCannotBeStarted) {
  // Without more address space there are no stacks: those of threads that have ended, which the C library keeps, are soon used up.
  // What the pool itself allocates finds room in the heap, which keeps this.
  auto room = std::make_unique<std::byte[]>(std::size_t{96} << 10);
  asm volatile("" : : "r"(room.get()) : "memory");
  room.reset();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  const rlimit none{.rlim_cur = 1, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  std::string message;
  try {
    const ThreadPool pool(200);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    message = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_EQ(message.substr(0, 19), "threads: found 200,");
}
#endif

}  // namespace
}  // namespace specdec
