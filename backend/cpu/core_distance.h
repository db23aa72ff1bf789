#pragma once

#include <chrono>
#include <optional>

#include "backend/cpu/thread_pool.h"

namespace specdec {

/// Seconds that a line takes from the core of a team's first thread to that of thread `other`, or back: the least of several tries, each the mean of `turns` of them, an even number. On one
/// chiplet of AMD's Zen 4 it is 25 to 70 ns, on two 140 to 190. Nothing where none could be measured: the team is of one thread, or one of both was not running, since both share a core, say.
std::optional<double> line_seconds(ThreadPool& pool, int other, int turns, int tries);

/// Of a team the threads before the first that is far from thread 0, if those in front are near and all behind it are far, as cores of one chiplet follow one another: [1, team], by few
/// calls of is_far(thread). The last is asked first.
template <typename IsFar>
int count_near(int team, const IsFar& is_far) {
  if (team == 1 || !is_far(team - 1)) return team;
  int near = 0;
  int far = team - 1;
  while (far - near > 1) {
    const int between = (near + far) / 2;
    (is_far(between) ? far : near) = between;
  }
  return far;
}

/// Tells a team which of its cores share a cache with the caller's, and which are so far from it that what they write for one another had better go past theirs, where lines that others have read
/// are costly to write at all (has_costly_shared_lines()). It is measured now and then, since a virtual machine is told neither where its cores are nor that they have been moved.
class CoreDistance {
 public:
  explicit CoreDistance(ThreadPool& pool);

  /// Once a pass: some microseconds, when kPeriod has gone by.
  void look();

  static constexpr std::chrono::milliseconds kPeriod{20};
  static constexpr double kFarSeconds = 100e-9;

 private:
  ThreadPool& pool_;
  bool matters_;
  std::chrono::steady_clock::time_point next_;  ///< from when on it is measured again
};

}  // namespace specdec
