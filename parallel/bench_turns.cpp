#include "parallel/bench_turns.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>

#include "parallel/value_bytes.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFewest = 10;
constexpr int kMost = 5000;
constexpr int kBlocks = 20;  // of each contender at most

double agreed(Communicator& control, double value) {
  control.broadcast(value_bytes(value), 0, Stream{});
  return value;
}

/// Returns the seconds of one run, the same on every rank.
double warm_up(Communicator& control, const BenchEffort& effort, const std::function<void(int)>& run) {
  const auto timed = [&](int runs) {
    const Clock::time_point begin = Clock::now();
    run(runs);
    return agreed(control, std::chrono::duration<double>(Clock::now() - begin).count());
  };
  if (effort.warmup) {
    const int runs = effort.iterations ? *effort.warmup : std::max(*effort.warmup, 1);
    return timed(runs) / std::max(runs, 1);
  }
  double all = timed(1);  // first touches; says nothing about the second run
  for (int runs = 1;; runs = std::min(2 * runs, kMost)) {
    const double seconds = timed(runs);
    all += seconds;
    if (all >= effort.seconds / 10 || runs == kMost) {
      return seconds / runs;
    }
  }
}

}  // namespace

std::vector<BenchBlock> interleaved(std::size_t contenders, int iterations) {
  std::vector<BenchBlock> order;
  const int blocks = std::min(iterations, kBlocks);
  for (int block = 0; block < blocks; ++block) {
    const std::int64_t all = iterations;
    const int runs = static_cast<int>(all * (block + 1) / blocks - all * block / blocks);
    for (std::size_t i = 0; i < contenders; ++i) {
      order.push_back({block % 2 == 0 ? i : contenders - 1 - i, runs});
    }
  }
  return order;
}

int iterations_for(const BenchEffort& effort, const std::vector<double>& seconds) {
  if (effort.iterations) {
    return *effort.iterations;
  }
  constexpr double kNoTime = 1e-9;
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const double fitting = effort.seconds * static_cast<double>(seconds.size()) / std::max(all, kNoTime);
  return static_cast<int>(std::clamp<double>(fitting, kFewest, kMost));
}

bool take_turns(Communicator& control, std::size_t contenders, const BenchEffort& effort,
                const std::function<void(std::size_t, int, bool)>& run, const std::function<bool()>& stop) {
  const auto stopped = [&] { return agreed(control, stop() ? 1 : 0) != 0; };
  std::vector<double> seconds;
  for (std::size_t i = 0; i < contenders; ++i) {
    if (stopped()) {
      return false;
    }
    seconds.push_back(warm_up(control, effort, [&](int runs) { run(i, runs, false); }));
  }
  std::size_t last = contenders;
  for (const BenchBlock& block : interleaved(contenders, iterations_for(effort, seconds))) {
    if (stopped()) {
      return false;
    }
    if (block.contender != last && block.runs > 1) {
      run(block.contender, 1, false);
    }
    run(block.contender, block.runs, true);
    last = block.contender;
  }
  return true;
}

}  // namespace specdec
