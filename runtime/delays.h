#pragma once

#include <optional>

#include "runtime/statistics.h"

namespace specdec {

/// What comes now and then on top of a time that is otherwise always the same: a Poisson number of delays, each exponential.
struct Delays {
  double number = 0;  ///< mean, of one time
  double mean = 0;    ///< seconds of one
};

/// The value that a time's delays exceed with probability 1 - `p`, over the mean of one: of a compound Poisson sum, P(sum > x) = sum over j of Poisson(j; number) times
/// P(Erlang(j) > x).
double quantile_of_delays(double number, double p);

/// The delays with which P90 and P99 lie as far above P50 as given. Their number alone decides how these two distances are to each other, their mean how large they are. Nothing
/// where P90 is not above P50, or P99 not above P90.
std::optional<Delays> delays_of(const Percentiles& times);

}  // namespace specdec
