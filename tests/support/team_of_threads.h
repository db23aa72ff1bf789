#pragma once

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

namespace specdec {

/// Threads of the host.
class TeamOfThreads {
 public:
  explicit TeamOfThreads(int threads) : threads_(threads) {}

  class Barrier {
   public:
    Barrier(TeamOfThreads& /*team*/, int count) : barrier_(count) {}
    void arrive_and_wait() { barrier_.arrive_and_wait(); }

   private:
    std::barrier<> barrier_;
  };

  /// work(thread) by every thread; returns when all are done.
  void run(const std::function<void(int)>& work) const {
    std::vector<std::jthread> running;
    for (int thread = 0; thread < threads_; ++thread) {
      running.emplace_back([&work, thread] { work(thread); });
    }
  }

 private:
  int threads_;
};

}  // namespace specdec
