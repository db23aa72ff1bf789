#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace specdec {

/// Nearest-rank percentiles, in seconds: the smallest value that at least that share of the weight does not exceed.
struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

using Weighted = std::pair<double, std::int64_t>;  ///< value, weight

/// Nothing of nothing.
std::optional<Percentiles> percentiles(std::vector<Weighted> values);

/// Of values that are not empty; the mean of the two middle ones of an even number.
double median(std::vector<double> values);

/// The median of the ratios of values that belong together place by place, as many on either side and not none: of times taken in turns, since a machine's pace may change between turns, and the two
/// medians may then be of different ones.
double median_ratio(const std::vector<double>& numerators, const std::vector<double>& denominators);

/// The mean of the middle half of values that are not empty, a quarter cut off at either end, of a number that 4 does not divide in part: as deaf as a median to a few that are far
/// off, and of as many as a dozen a third less noisy.
double midmean(const std::vector<double>& values);

/// The mean of the lesser half of values that are not empty (of an odd number half of the middle one): of times on a machine that others use too. What others do makes a job slower and hardly ever quicker, so
/// the slower half says more of them than of the job, and the least alone more of luck. Of few values it is higher than of very many: of normal noise by 0.23 of its sigma of 3, by 0.07 of 9.
double quicker_half(const std::vector<double>& values);
/// How much of each value counts there, 1 in all: for the mean of what belongs to the values, over the same of them.
std::vector<double> quicker_half_shares(const std::vector<double>& values);

/// Nothing over what is not above 0.
std::optional<double> ratio(double numerator, double denominator);
std::optional<double> ratio(std::optional<double> numerator, std::optional<double> denominator);

}  // namespace specdec
