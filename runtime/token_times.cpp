#include "runtime/token_times.h"

#include <algorithm>
#include <vector>

#include "backend/error.h"
#include "runtime/theory.h"

namespace specdec {

TokenTimes token_times(double alpha, std::int64_t k, double loop_seconds) {
  const LoopCase only[] = {{.seconds = loop_seconds}};
  return token_times(alpha, k, only);
}

TokenTimes token_times(double alpha, std::int64_t k, std::span<const LoopCase> cases) {
  const double per_loop = tokens_per_loop(alpha, k);
  const auto most = static_cast<std::size_t>(k) + 1;
  struct Share {
    double seconds;  ///< of a token
    double share;    ///< of all tokens
  };
  std::vector<Share> tokens;
  double reached = 1;  // that the first n - 1 drafted tokens were accepted
  for (std::size_t n = 1; n <= most; ++n) {
    const double ends_here = n == most ? reached : reached * (1 - alpha);
    const auto yield = static_cast<double>(n);
    for (const LoopCase& of : cases) tokens.push_back({of.seconds / yield, of.share * yield * ends_here / per_loop});
    reached *= alpha;
  }
  TokenTimes times;
  double squares = 0;
  for (const Share& of : tokens) {
    times.mean += of.share * of.seconds;
    squares += of.share * of.seconds * of.seconds;
  }
  times.variance = squares - times.mean * times.mean;
  std::ranges::sort(tokens, {}, &Share::seconds);
  const auto percentile = [&](double of) {
    double weight = 0;
    for (const Share& each : tokens) {
      weight += each.share;
      // What rounding takes from a weight that is `of` must not make it miss its own percentile.
      constexpr double kRounding = 1e-12;
      if (weight >= of - kRounding) return each.seconds;
    }
    return tokens.back().seconds;
  };
  times.percentiles = {percentile(0.50), percentile(0.90), percentile(0.99)};
  return times;
}

}  // namespace specdec
