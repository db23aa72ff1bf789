#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/config.h"

namespace specdec {

/// How logits become the distribution that a token is drawn from. Applied in the usual order (Hugging Face's): temperature, top-k,
/// top-p; the same for target and draft, and before the acceptance rule (Leviathan et al. 2023, section 2.2).
struct SamplingParams {
  float temperature = 1.0F;  ///< 0 is greedy
  std::int32_t top_k = 0;    ///< 0: off
  float top_p = 1.0F;        ///< 1: off

  bool greedy() const { return temperature == 0.0F; }
  /// top-k or top-p: the warp needs the whole row.
  bool truncates() const { return !greedy() && (top_k > 0 || top_p < 1.0F); }
};

/// Turns one row of logits into probabilities. Holds scratch, so a call allocates nothing after the first of its size.
/// Ties at the cut of top-k and top-p, and in the argmax, go to the lowest id. With the same fp32 logits the result has the same bits
/// on every machine: elementary functions and orders of summation are this project's own.
class Sampler {
 public:
  explicit Sampler(const SamplingParams& params) : params_(params) {}
  const SamplingParams& params() const { return params_; }

  /// probabilities[x] = p(x), summing to 1 up to rounding; 0 outside the kept set. Greedy gives one 1. Both [vocabulary].
  void warp(std::span<const float> logits, std::span<float> probabilities);

 private:
  SamplingParams params_;
  std::vector<std::pair<float, Token>> scratch_;
};

/// The token at which the running sum of `weights` (>= 0, in index order, not necessarily normalised) first exceeds
/// u * total, u in [0, 1). Never a token of weight zero. Throws kInternal if no weight is positive.
Token draw(std::span<const float> weights, double u);

/// Lowest index of the largest entry.
Token argmax(std::span<const float> values);

}  // namespace specdec
