#pragma once

#include <cstdint>
#include <span>

#include "backend/selection.h"

namespace specdec {

/// How logits become the distribution that a token is drawn from. Applied in the usual order (Hugging Face's):
/// temperature, top-k, top-p; the same for target and draft, and before the acceptance rule (Leviathan et al. 2023,
/// section 2.2).
struct SamplingParams {
  float temperature = 1.0F;  ///< 0 is greedy
  std::int32_t top_k = 0;    ///< 0: off
  float top_p = 1.0F;        ///< 1: off

  bool greedy() const { return temperature == 0.0F; }
  /// top-k or top-p: the warp needs the whole row.
  bool truncates() const { return !greedy() && (top_k > 0 || top_p < 1.0F); }
};

/// Why a row of logits cannot be sampled: only broken weights make such a row.
enum class RowFault : std::int32_t {
  kNone = 0,
  kNan,    ///< a NaN or +inf among the logits
  kEmpty,  ///< nothing but -inf
  kSums,   ///< its statistics are not finite, or its weights sum to 0
};

/// Of the statistics of a row: a NaN or +inf among its logits shows in its sum, and so does a row of nothing but -inf.
constexpr RowFault fault_of_sums(float max, float sum) {
  const auto finite = [](float x) { return x - x == 0.0F; };
  return finite(max) && finite(sum) && sum > 0.0F ? RowFault::kNone : RowFault::kSums;
}

/// Throws kBadInput with the line of a fault; nothing for kNone. `max` and `sum` are the statistics that kSums is about.
void throw_fault(RowFault fault, float max = 0, float sum = 0);

/// Turns one row of logits into probabilities. Holds scratch, so a call allocates nothing after the first of its size.
/// Ties at the cut of top-k and top-p, and in the argmax, go to the lowest id. With the same fp32 logits the result has
/// the same bits on every machine: elementary functions and orders of summation are this project's own.
class Sampler {
 public:
  explicit Sampler(const SamplingParams& params) : params_(params) {}
  const SamplingParams& params() const { return params_; }

  /// probabilities[x] = p(x), summing to 1 up to rounding; 0 outside the kept set. Greedy gives one 1. Both
  /// [vocabulary]. A logit of -inf is a token that cannot be; NaN, +inf or a row of nothing but -inf is kBadInput,
  /// since only broken weights make one. A temperature so small that the largest logit / temperature overflows is the
  /// greedy limit.
  void warp(std::span<const float> logits, std::span<float> probabilities);
  /// The same, but says what is wrong; the probabilities are 0 then.
  RowFault try_warp(std::span<const float> logits, std::span<float> probabilities);

 private:
  void keep_top_k(std::span<float> weights);
  void keep_top_p(std::span<float> weights);

  SamplingParams params_;
  Selection selection_;
};

/// p(x) = exp(z(x) - max) / sum for a whole row, z = logits / temperature, from the row's statistics (RowSum in
/// parallel/head.h). `out` [vocabulary], may be `logits` itself. Without truncation this is all that a row needs after
/// the collectives of a decision. Statistics that are not finite are kBadInput, as broken logits are to warp().
void probabilities_from_sums(std::span<const float> logits, float temperature, float max, float sum,
                             std::span<float> out);

/// The same for one token whose z = logit / temperature is at hand; the same bits as its entry of the whole row.
float probability_from_sums(float z, float max, float sum);

/// out(x) = max(p(x) - q(x), 0): unnormalised weights of the token that takes a rejected one's place; p itself where that vanishes or q is empty. All
/// [vocabulary]; out may be p or q.
void residual(std::span<const float> p, std::span<const float> q, std::span<float> out);

/// Entries that draw() adds up before it adds them to the others; the last block of a row may be shorter.
inline constexpr std::size_t kDrawBlock = 256;

/// The token at which the running sum of `weights` (>= 0, in index order, not necessarily normalised) first exceeds
/// u * total, u in [0, 1). Never a token of weight zero. Sums are in double precision, by blocks of kDrawBlock. Throws
/// kInternal if no weight is positive.
std::int32_t draw(std::span<const float> weights, double u);

/// The same; -1 if no weight is positive or u is not in [0, 1).
std::int32_t find_drawn(std::span<const float> weights, double u);

/// Lowest index of the largest entry. Throws kInternal for an empty row.
std::int32_t argmax(std::span<const float> values);

}  // namespace specdec
