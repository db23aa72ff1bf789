#include "parallel/stand_in_work.h"

#include <algorithm>
#include <ctime>
#include <numeric>

namespace specdec {

double core_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void burn_core_until(double seconds) {
  while (core_seconds() < seconds) {
  }
}

void WeightReader::read(std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t left = weights_.empty() ? 0 : bytes / sizeof(std::uint64_t); left > 0;) {
    const std::size_t count = std::min(left, weights_.size() - at_);
    const auto begin = weights_.begin() + static_cast<std::ptrdiff_t>(at_);
    sum = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), sum);
    at_ = (at_ + count) % weights_.size();
    left -= count;
  }
  sum_ = sum;
}

}  // namespace specdec
