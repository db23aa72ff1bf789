#include "backend/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/error.h"

namespace specdec {

Cut Selection::largest(std::span<const float> weights, std::int64_t count) {
  check(count >= 1, "top-k keeps at least one token");
  return cut(collect(weights, 0.0F), static_cast<double>(count), [](float) { return 1.0; });
}

Cut Selection::heaviest(std::span<const float> weights, double share, double total) {
  // If an entry below (1 - share) * total / V were needed, all entries up to it, at most V of them, would weigh less
  // than (1 - share) * total together, so the larger ones reach the share without it. Half of that leaves room for
  // rounding.
  const double bound = 0.5 * (1.0 - share) * total / static_cast<double>(weights.size());
  return cut(collect(weights, static_cast<float>(bound)), share * total,
             [](float weight) { return static_cast<double>(weight); });
}

std::span<Selection::Candidate> Selection::collect(std::span<const float> weights, float bound) {
  // Subnormal weights are zeros on threads that flush, so they are nobody's candidates.
  bound = std::max(bound, std::numeric_limits<float>::min());
  if (scratch_.size() < weights.size()) {
    scratch_.resize(weights.size());
  }
  const auto size = static_cast<std::int64_t>(weights.size());
  constexpr std::int64_t kBlock = 16;
  std::size_t count = 0;
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, size);
    // Most blocks of a trained model's row hold no candidate; this test runs on whole vectors.
    int any = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      any |= static_cast<int>(weights[i] >= bound);
    }
    if (any == 0) {
      continue;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      scratch_[count] = {weights[i], static_cast<std::int32_t>(i)};
      count += static_cast<std::size_t>(weights[i] >= bound);
    }
  }
  check(count > 0, "a row of weights has a positive entry");
  return std::span(scratch_).first(count);
}

template <typename Measure>
Cut Selection::cut(std::span<Candidate> candidates, double goal, Measure measure) {
  double taken = 0;
  for (int shift = 2 * kDigitBits; shift >= 0 && candidates.size() > 1; shift -= kDigitBits) {
    const auto digit_of = [shift](const Candidate& candidate) {
      return (std::bit_cast<std::uint32_t>(candidate.weight) >> shift) & ((1U << kDigitBits) - 1U);
    };
    buckets_.fill(0.0);
    std::uint32_t lowest = digit_of(candidates.front());
    std::uint32_t digit = lowest;
    for (const Candidate& candidate : candidates) {
      const std::uint32_t at = digit_of(candidate);
      buckets_[at] += measure(candidate.weight);
      lowest = std::min(lowest, at);
      digit = std::max(digit, at);
    }
    // The lowest bucket ends the search also when rounding leaves the goal just out of reach.
    while (digit > lowest && taken + buckets_[digit] < goal) {
      taken += buckets_[digit];
      --digit;
    }
    const auto end = std::remove_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& candidate) { return digit_of(candidate) != digit; });
    candidates = candidates.first(static_cast<std::size_t>(end - candidates.begin()));
  }
  // What is left has one value, in order of ids.
  const float value = candidates.front().weight;
  const double missing = std::ceil((goal - taken) / measure(value));
  const auto more = std::clamp(missing, 1.0, static_cast<double>(candidates.size()));
  return {value, candidates[static_cast<std::size_t>(more) - 1].token};
}

}  // namespace specdec
