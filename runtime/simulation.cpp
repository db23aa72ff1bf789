#include "runtime/simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/error.h"
#include "runtime/philox.h"
#include "runtime/round.h"

namespace specdec {
namespace {

/// Uniform numbers in (0, 1), one after another.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : key_{.seed = seed, .purpose = Purpose::kOrder} {}
  double next() {
    const double u = uniform(key_);
    if (++key_.position == 0) ++key_.round;
    return std::clamp(u, std::numeric_limits<double>::min(), 1 - 0x1p-53);
  }

 private:
  RandomKey key_;
};

/// What ranks do between two collectives, until the last of them is done.
class Work {
 public:
  Work(const Disturbance& by, int ranks, Draws& draws)
      : by_(by), slow_(std::min(by.stragglers, ranks)), others_(ranks - slow_), draws_(draws) {}

  /// `seconds` without any disturbance, on each of the ranks.
  double last(double seconds) {
    double factor = 0;
    if (others_ > 0) factor = largest_factor(others_);
    if (slow_ > 0) factor = std::max(factor, by_.straggler_factor * largest_factor(slow_));
    return seconds * factor + longest_delay(others_ + slow_);
  }

 private:
  double largest_factor(int ranks) {
    if (by_.compute.sigma == 0) return 1;
    return std::exp(by_.compute.sigma * normal_quantile(std::pow(draws_.next(), 1.0 / ranks)));
  }
  double longest_delay(int ranks) {
    if (by_.compute.tail_probability == 0) return 0;
    // P(delay <= x) = 1 - p exp(-x / mean), to the power of the ranks.
    const double beyond = -std::expm1(std::log(draws_.next()) / ranks);
    return beyond < by_.compute.tail_probability
               ? -by_.compute.tail_mean * std::log(beyond / by_.compute.tail_probability)
               : 0;
  }

  const Disturbance& by_;
  int slow_;
  int others_;
  Draws& draws_;
};

/// A pass cut at its all-reduces.
struct Segments {
  double work = 0;  ///< seconds of one
  std::int64_t count = 1;
  double all_reduce = 0;  ///< seconds, without jitter; of all segments but the last
};

Segments cut(const PassTime& pass) {
  const std::int64_t all_reduces = pass.all_reduces;
  Segments out;
  out.count = all_reduces + 1;
  out.work = pass.work / static_cast<double>(out.count);
  out.all_reduce = all_reduces > 0 ? pass.meeting / static_cast<double>(all_reduces) : 0;
  return out;
}

}  // namespace

double normal_quantile(double p) {
  check(p > 0 && p < 1, "a quantile is of a probability between 0 and 1");
  constexpr double kTail = 0.02425;
  const auto polynomial = [](std::initializer_list<double> coefficients, double x) {
    double value = 0;
    for (const double c : coefficients) value = value * x + c;
    return value;
  };
  if (p > 0.5 && 1 - p < kTail) return -normal_quantile(1 - p);
  double z = 0;
  if (p < kTail) {
    const double q = std::sqrt(-2 * std::log(p));
    z = polynomial({-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00, -2.549732539343734e+00,
                    4.374664141464968e+00, 2.938163982698783e+00},
                   q) /
        polynomial({7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00, 1}, q);
  } else {
    const double q = p - 0.5;
    const double r = q * q;
    z = q *
        polynomial({-3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02, 1.383577518672690e+02,
                    -3.066479806614716e+01, 2.506628277459239e+00},
                   r) /
        polynomial({-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                    -1.328068155288572e+01, 1},
                   r);
  }
  return z;
}

Simulated simulate(const Hardware& hardware, const PredictedJob& job, double alpha, std::int64_t k, std::int64_t loops,
                   std::uint64_t seed) {
  check(loops > 0 && k >= 0 && alpha >= 0 && alpha <= 1, "a simulation has loops");
  Draws draws(seed);
  std::uint64_t collective = 0;
  const LoopWork work = loop_work(hardware, job, k);
  const auto meet = [&](double seconds) { return hardware.interconnect.with_jitter(seconds, seed, ++collective); };
  const auto play = [&](const Segments& pass, int ranks) {
    Work between(hardware.disturbance, ranks, draws);
    double seconds = 0;
    for (std::int64_t i = 0; i < pass.count; ++i) {
      seconds += between.last(pass.work);
      if (i + 1 < pass.count) seconds += meet(pass.all_reduce);
    }
    return seconds;
  };
  const Segments first = cut(work.first_draft);
  const Segments first_after_all = cut(work.first_after_all);
  const Segments later = cut(work.later_draft);
  const Segments score = cut(work.score);

  std::vector<Weighted> of_tokens;
  std::vector<Weighted> of_loops;
  double time = 0;
  double tokens = 0;
  bool all_stood = false;  // of the loop before
  const auto draft = [&](std::int64_t count) {
    double seconds = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Segments& pass = i > 0 ? later : all_stood ? first_after_all : first;
      seconds += play(pass, work.drafting_ranks) + work.drafted;
    }
    return seconds;
  };
  const bool is_ahead = job.placement == Placement::kDedicated && k > 0;
  // When what was drafted ahead has come, from the loop's begin on; nothing was ahead of the first one.
  double there = 0;
  bool right = false;  // whether it is what is wanted
  for (std::int64_t loop = 0; loop < loops; ++loop) {
    double seconds = 0;
    if (!is_ahead) {
      seconds = draft(k);
    } else {
      seconds = std::max(0.0, there);
      double drafts_from = seconds;
      if (right) {
        drafts_from += meet(work.order);
      } else {
        drafts_from += meet(work.order) + draft(k);
        seconds = drafts_from + meet(work.order);
      }
      there = drafts_from + draft(k + 1) + meet(work.order);
    }
    seconds += work.rest;
    if (work.broadcast > 0) seconds += meet(work.broadcast);
    seconds += play(score, work.target_ranks);
    if (work.gather > 0) seconds += meet(work.gather);
    std::int64_t yielded = 1;
    while (yielded <= k && draws.next() < alpha) ++yielded;
    seconds += hardware.accepted_seconds * static_cast<double>(yielded - 1);
    there -= seconds;
    all_stood = !is_ahead && yielded == k + 1;
    right = is_ahead && yielded == k + 1 && draws.next() < alpha;
    of_tokens.emplace_back(seconds / static_cast<double>(yielded), yielded);
    of_loops.emplace_back(seconds, 1);
    time += seconds;
    tokens += static_cast<double>(yielded);
  }
  return {.seconds_per_token = time / tokens,
          .token = percentiles(std::move(of_tokens)).value(),
          .loop = percentiles(std::move(of_loops)).value()};
}

}  // namespace specdec
