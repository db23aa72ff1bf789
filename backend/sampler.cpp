#include "backend/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/error.h"
#include "backend/vector_math.h"

namespace specdec {
namespace {

/// A NaN fails every comparison, so one test per entry finds both NaN and +inf; -inf passes.
bool has_nan(std::span<const float> logits) {
  int bad = 0;
  for (const float logit : logits) {
    bad |= static_cast<int>(!(logit <= std::numeric_limits<float>::max()));
  }
  return bad != 0;
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

void point_mass(std::int32_t token, std::span<float> probabilities) {
  std::fill(probabilities.begin(), probabilities.end(), 0.0F);
  probabilities[static_cast<std::size_t>(token)] = 1.0F;
}

}  // namespace

void throw_fault(RowFault fault, float max, float sum) {
  constexpr const char* kCause = "(broken weights in the checkpoint?)";
  switch (fault) {
    case RowFault::kNone:
      return;
    case RowFault::kNan:
      throw_bad_input(fmt::format("logits are not finite: found NaN or +inf, expected numbers {}", kCause));
    case RowFault::kEmpty:
      throw_bad_input(fmt::format("logits are not finite: all are -inf, expected at least one number {}", kCause));
    case RowFault::kSums:
      break;
  }
  throw_bad_input(fmt::format(
      "logits are not finite: their largest is {} and their weights sum to {}, expected numbers {}", max, sum, kCause));
}

void Sampler::warp(std::span<const float> logits, std::span<float> probabilities) {
  throw_fault(try_warp(logits, probabilities));
}

RowFault Sampler::try_warp(std::span<const float> logits, std::span<float> probabilities) {
  check(!logits.empty() && logits.size() == probabilities.size(), "a row of probabilities is as long as its logits");
  const float largest = max_of(logits);
  const bool nan = has_nan(logits);
  if (nan || largest == -std::numeric_limits<float>::infinity()) {
    std::fill(probabilities.begin(), probabilities.end(), 0.0F);
    return nan ? RowFault::kNan : RowFault::kEmpty;
  }
  const float max_z = params_.greedy() ? 0.0F : largest / params_.temperature;
  if (params_.greedy() || !std::isfinite(max_z)) {
    point_mass(argmax(logits), probabilities);
    return RowFault::kNone;
  }
  scaled_exp(logits, params_.temperature, max_z, probabilities);
  keep_top_k(probabilities);
  keep_top_p(probabilities);
  normalise(probabilities);
  return RowFault::kNone;
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
  throw_fault(fault_of_sums(max, sum), max, sum);
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

void residual(std::span<const float> p, std::span<const float> q, std::span<float> out) {
  check(out.size() == p.size() && (q.empty() || q.size() == p.size()), "the rows of a residual are equally long");
  int left = 0;
  for (std::size_t x = 0; x < q.size(); ++x) {
    left |= static_cast<int>(p[x] > q[x]);
  }
  if (left == 0) {
    // A token was rejected because p < q there, so exact rows would have p > q elsewhere; only rows that are equal up to the rounding of their sums
    // have not. Rejection itself then has no more probability than that rounding, so whatever is drawn moves the output by no more either; p keeps
    // it inside the target's support.
    if (out.data() != p.data()) {
      std::copy(p.begin(), p.end(), out.begin());
    }
    return;
  }
  for (std::size_t x = 0; x < p.size(); ++x) {
    out[x] = std::max(p[x] - q[x], 0.0F);
  }
}

std::int32_t draw(std::span<const float> weights, double u) {
  const std::int32_t token = find_drawn(weights, u);
  check(token >= 0, "a token is drawn from weights of which one is positive, with u in [0, 1)");
  return token;
}

std::int32_t find_drawn(std::span<const float> weights, double u) {
  const auto block_at = [&](std::size_t begin) {
    return weights.subspan(begin, std::min(kDrawBlock, weights.size() - begin));
  };
  double total = 0;
  for (std::size_t begin = 0; begin < weights.size(); begin += kDrawBlock) {
    total += sum_of(block_at(begin));
  }
  if (!(total > 0.0)) {
    return -1;
  }
  // u <= 1 - 2^-53, so the goal is below the total also after rounding, and some block passes it.
  const double goal = u * total;
  double before = 0;
  std::size_t begin = 0;
  for (; begin < weights.size(); begin += kDrawBlock) {
    const double after = before + sum_of(block_at(begin));
    if (after > goal) {
      break;
    }
    before = after;
  }
  if (begin >= weights.size()) {
    return -1;
  }
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
  return static_cast<std::int32_t>(last);
}

std::int32_t argmax(std::span<const float> values) {
  check(!values.empty(), "a row that is searched for its largest entry is not empty");
  return argmax_of(values);
}

}  // namespace specdec
