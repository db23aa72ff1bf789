#include "runtime/token_times.h"

#include <vector>

#include "backend/error.h"
#include "runtime/theory.h"

namespace specdec {

TokenTimes token_times(double alpha, std::int64_t k, double loop_seconds) {
  const double per_loop = tokens_per_loop(alpha, k);
  const auto most = static_cast<std::size_t>(k) + 1;
  // Of all tokens, those of loops that yield n.
  std::vector<double> share(most + 1);
  double reached = 1;  // that the first n - 1 drafted tokens were accepted
  for (std::size_t n = 1; n <= most; ++n) {
    const double ends_here = n == most ? reached : reached * (1 - alpha);
    share[n] = static_cast<double>(n) * ends_here / per_loop;
    reached *= alpha;
  }
  TokenTimes times;
  times.mean = loop_seconds / per_loop;
  double squares = 0;
  for (std::size_t n = 1; n <= most; ++n) {
    const double seconds = loop_seconds / static_cast<double>(n);
    squares += share[n] * seconds * seconds;
  }
  times.variance = squares - times.mean * times.mean;
  // From the longest loops' tokens, which take least, to those of loops of one.
  const auto percentile = [&](double of) {
    double weight = 0;
    std::size_t n = most;
    for (; n > 1; --n) {
      weight += share[n];
      // What rounding takes from a weight that is `of` must not make it miss its own percentile.
      constexpr double kRounding = 1e-12;
      if (weight >= of - kRounding) break;
    }
    return loop_seconds / static_cast<double>(n);
  };
  times.percentiles = {percentile(0.50), percentile(0.90), percentile(0.99)};
  return times;
}

}  // namespace specdec
