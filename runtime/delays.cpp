#include "runtime/delays.h"

#include <cmath>

#include "backend/error.h"

namespace specdec {
namespace {

/// Fewer would leave even P90 without any, and more are as good as normal.
constexpr double kFewest = 0.106;
constexpr double kMost = 30;
constexpr int kHalvings = 60;

/// P(sum > x) of delays of mean 1.
double beyond(double number, double x) {
  double poisson = std::exp(-number);
  double erlang = 0;
  double term = std::exp(-x);
  double sum = 0;
  // Beyond so many neither Poisson numbers nor Erlang's terms have any weight.
  const int most = static_cast<int>(number + x + 12 * std::sqrt(number + x) + 40);
  for (int j = 1; j <= most; ++j) {
    poisson *= number / j;
    erlang += term;
    term *= x / j;
    sum += poisson * erlang;
  }
  return sum;
}

struct Above {
  double p90 = 0;
  double p99 = 0;
};

/// Over P50, of delays of mean 1.
Above above_p50(double number) {
  const double p50 = quantile_of_delays(number, 0.5);
  return {quantile_of_delays(number, 0.9) - p50, quantile_of_delays(number, 0.99) - p50};
}

}  // namespace

double quantile_of_delays(double number, double p) {
  check(number > 0 && p > 0 && p < 1, "a quantile is of some delays and a probability between 0 and 1");
  double low = 0;
  if (beyond(number, low) <= 1 - p) return low;
  double high = 1;
  while (beyond(number, high) > 1 - p) high *= 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (beyond(number, middle) > 1 - p ? low : high) = middle;
  }
  return high;
}

std::optional<Delays> delays_of(const Percentiles& times) {
  const double near = times.p90 - times.p50;
  const double far = times.p99 - times.p50;
  if (near <= 0 || far <= near) return std::nullopt;
  double low = kFewest;
  double high = kMost;
  for (int i = 0; i < kHalvings; ++i) {
    const double number = std::sqrt(low * high);
    const Above found = above_p50(number);
    (found.p99 * near > far * found.p90 ? low : high) = number;
  }
  const double number = std::sqrt(low * high);
  return Delays{.number = number, .mean = far / above_p50(number).p99};
}

}  // namespace specdec
