#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace specdec {

/// Threads that take turns: one runs until it waits at a barrier, then the next one. An exception of any of them ends run(), and so do threads that
/// wait at different barriers for ever.
class TeamOfFibers {
 public:
  explicit TeamOfFibers(int threads);
  TeamOfFibers(const TeamOfFibers&) = delete;
  TeamOfFibers& operator=(const TeamOfFibers&) = delete;
  ~TeamOfFibers();

  class Barrier {
   public:
    Barrier(TeamOfFibers& team, int count) : team_(team), count_(count) {}
    void arrive_and_wait();

   private:
    friend class TeamOfFibers;
    TeamOfFibers& team_;
    int count_;
    int arrived_ = 0;
    unsigned long round_ = 0;
  };

  /// work(thread) by every thread; returns when all are done.
  void run(const std::function<void(int)>& work);

 private:
  struct Fiber;
  struct Scheduler;
  static void enter(unsigned high, unsigned low);

  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace specdec
