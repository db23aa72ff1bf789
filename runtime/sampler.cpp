#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/error.h"
#include "backend/vector_math.h"

namespace specdec {
namespace {

/// A NaN fails every comparison, so one test per entry finds both NaN and +inf; -inf passes.
void require_no_nan(std::span<const float> logits) {
  int bad = 0;
  for (const float logit : logits) {
    bad |= static_cast<int>(!(logit <= std::numeric_limits<float>::max()));
  }
  if (bad != 0) {
    throw_bad_input("logits are not finite: found NaN or +inf, expected numbers (broken weights in the checkpoint?)");
  }
}

/// A NaN or +inf among the logits of a row shows in its sum, and so does a row of nothing but -inf.
void require_finite(float max, float sum) {
  if (!(std::isfinite(max) && std::isfinite(sum) && sum > 0.0F)) {
    throw_bad_input(
        fmt::format("logits are not finite: their largest is {} and their weights sum to {}, expected numbers (broken "
                    "weights in the checkpoint?)",
                    max, sum));
  }
}

void normalise(std::span<float> weights) {
  const auto total = static_cast<float>(sum_of(weights));
  for (float& weight : weights) {
    weight /= total;
  }
}

void drop_below(std::span<float> weights, const Cut& cut) {
  for (float& weight : weights) {
    weight = weight >= cut.value ? weight : 0.0F;
  }
  for (auto i = static_cast<std::size_t>(cut.token) + 1; i < weights.size(); ++i) {
    weights[i] = weights[i] == cut.value ? 0.0F : weights[i];
  }
}

void point_mass(Token token, std::span<float> probabilities) {
  std::fill(probabilities.begin(), probabilities.end(), 0.0F);
  probabilities[static_cast<std::size_t>(token)] = 1.0F;
}

}  // namespace

void Sampler::warp(std::span<const float> logits, std::span<float> probabilities) {
  check(!logits.empty() && logits.size() == probabilities.size(), "a row of probabilities is as long as its logits");
  require_no_nan(logits);
  const float largest = max_of(logits);
  if (largest == -std::numeric_limits<float>::infinity()) {
    throw_bad_input(
        "logits are not finite: all are -inf, expected at least one number (broken weights in the checkpoint?)");
  }
  const float max_z = params_.greedy() ? 0.0F : largest / params_.temperature;
  if (params_.greedy() || !std::isfinite(max_z)) {
    point_mass(argmax(logits), probabilities);
    return;
  }
  scaled_exp(logits, params_.temperature, max_z, probabilities);
  keep_top_k(probabilities);
  keep_top_p(probabilities);
  normalise(probabilities);
}

void Sampler::keep_top_k(std::span<float> weights) {
  if (params_.top_k > 0 && static_cast<std::size_t>(params_.top_k) < weights.size()) {
    drop_below(weights, selection_.largest(weights, params_.top_k));
  }
}

void Sampler::keep_top_p(std::span<float> weights) {
  if (params_.top_p < 1.0F) {
    drop_below(weights, selection_.heaviest(weights, static_cast<double>(params_.top_p), sum_of(weights)));
  }
}

void probabilities_from_sums(std::span<const float> logits, float temperature, float max, float sum,
                             std::span<float> out) {
  check(logits.size() == out.size(), "a row of probabilities is as long as its logits");
  require_finite(max, sum);
  scaled_exp(logits, temperature, max, out);
  for (float& weight : out) {
    weight /= sum;
  }
}

float probability_from_sums(float z, float max, float sum) {
  float out = 0;
  probabilities_from_sums({&z, 1}, 1.0F, max, sum, {&out, 1});
  return out;
}

Token draw(std::span<const float> weights, double u) {
  constexpr std::size_t kBlock = 256;
  const auto block_at = [&](std::size_t begin) {
    return weights.subspan(begin, std::min(kBlock, weights.size() - begin));
  };
  double total = 0;
  for (std::size_t begin = 0; begin < weights.size(); begin += kBlock) {
    total += sum_of(block_at(begin));
  }
  check(total > 0.0, "a token is drawn from weights of which one is positive");
  // u <= 1 - 2^-53, so the goal is below the total also after rounding, and some block passes it.
  const double goal = u * total;
  double before = 0;
  std::size_t begin = 0;
  for (; begin < weights.size(); begin += kBlock) {
    const double after = before + sum_of(block_at(begin));
    if (after > goal) {
      break;
    }
    before = after;
  }
  check(begin < weights.size(), "u is in [0, 1)");
  // Within the block the sum runs in index order. It may end an ulp short of the block's sum: then the last positive
  // weight is meant.
  std::size_t last = begin;
  double running = before;
  const auto block = block_at(begin);
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (block[i] > 0.0F) {
      last = begin + i;
      running += static_cast<double>(block[i]);
      if (running > goal) {
        break;
      }
    }
  }
  return static_cast<Token>(last);
}

Token argmax(std::span<const float> values) {
  check(!values.empty(), "a row that is searched for its largest entry is not empty");
  return argmax_of(values);
}

}  // namespace specdec
