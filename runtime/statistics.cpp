#include "runtime/statistics.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "backend/error.h"

namespace specdec {
namespace {

/// How much of each value counts in a mean of those between two shares of them all, in their order.
std::vector<double> shares_between(const std::vector<double>& values, double least, double most) {
  check(!values.empty(), "a mean of no values");
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  const double from = least * static_cast<double>(values.size());
  const double to = most * static_cast<double>(values.size());
  std::vector<double> shares(values.size());
  // Each value is a stretch of length 1.
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double begin = static_cast<double>(i);
    shares[order[i]] = std::max(std::min(begin + 1, to) - std::max(begin, from), 0.0) / (to - from);
  }
  return shares;
}

double weighted(const std::vector<double>& values, const std::vector<double>& shares) {
  return std::inner_product(values.begin(), values.end(), shares.begin(), 0.0);
}

}  // namespace

std::optional<Percentiles> percentiles(std::vector<Weighted> values) {
  std::sort(values.begin(), values.end());
  const std::int64_t total = std::accumulate(values.begin(), values.end(), std::int64_t{0},
                                             [](std::int64_t sum, const Weighted& v) { return sum + v.second; });
  if (total == 0) return std::nullopt;
  const auto at = [&](std::int64_t percent) {
    std::int64_t seen = 0;
    for (const auto& [value, weight] : values) {
      seen += weight;
      if (seen * 100 >= percent * total) return value;
    }
    return values.back().first;
  };
  return Percentiles{.p50 = at(50), .p90 = at(90), .p99 = at(99)};
}

double median(std::vector<double> values) {
  check(!values.empty(), "a median of no values");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median_ratio(const std::vector<double>& numerators, const std::vector<double>& denominators) {
  check(numerators.size() == denominators.size(), "ratios of as many values on either side");
  std::vector<double> ratios(numerators.size());
  std::ranges::transform(numerators, denominators, ratios.begin(), std::divides());
  return median(std::move(ratios));
}

double midmean(const std::vector<double>& values) { return weighted(values, shares_between(values, 0.25, 0.75)); }

double quicker_half(const std::vector<double>& values) { return weighted(values, quicker_half_shares(values)); }

std::vector<double> quicker_half_shares(const std::vector<double>& values) { return shares_between(values, 0, 0.5); }

std::optional<double> ratio(double numerator, double denominator) {
  if (!(denominator > 0)) return std::nullopt;
  return numerator / denominator;
}

std::optional<double> ratio(std::optional<double> numerator, std::optional<double> denominator) {
  if (!numerator || !denominator) return std::nullopt;
  return ratio(*numerator, *denominator);
}

}  // namespace specdec
