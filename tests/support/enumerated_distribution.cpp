#include "tests/support/enumerated_distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/factory.h"
#include "models/checkpoint.h"
#include "models/transformer.h"
#include "parallel/self_communicator.h"

namespace specdec::tests {
namespace {

std::vector<double> warp_in_double(const std::vector<float>& logits, const SamplingParams& sampling) {
  const std::size_t n = logits.size();
  std::vector<double> p(n);
  const double top = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < n; ++i) {
    p[i] = std::exp((static_cast<double>(logits[i]) - top) / static_cast<double>(sampling.temperature));
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  std::size_t kept = n;
  if (sampling.top_k > 0) {
    kept = std::min(kept, static_cast<std::size_t>(sampling.top_k));
  }
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    total += p[order[i]];
  }
  if (sampling.top_p < 1.0F) {
    double mass = 0;
    std::size_t i = 0;
    while (i < kept && mass < static_cast<double>(sampling.top_p) * total) {
      mass += p[order[i++]];
    }
    kept = i;
    total = mass;
  }
  std::vector<double> warped(n, 0.0);
  for (std::size_t i = 0; i < kept; ++i) {
    warped[order[i]] = p[order[i]] / total;
  }
  return warped;
}

}  // namespace

EnumeratedDistribution::EnumeratedDistribution(const std::filesystem::path& directory, const std::vector<Token>& prompt,
                                               const SamplingParams& sampling, DType dtype) {
  SelfCommunicator self;
  const auto backend = make_backend({.name = "reference"});
  const Checkpoint checkpoint(directory);
  Transformer model(load_model_config(directory), checkpoint, *backend, self, {.dtype = dtype});
  KvCache cache = model.make_cache();
  vocabulary_ = model.config().vocabulary;
  const auto v = static_cast<std::size_t>(vocabulary_);

  std::vector<float> logits(v);
  const auto after = [&](std::vector<Token> text) {
    cache.clear();
    model.head().gather_rows(model.prefill(text, cache, Stream{}), logits, Stream{});
    return warp_in_double(logits, sampling);
  };
  first_ = after(prompt);
  second_.resize(v * v);
  third_.resize(v * v * v);
  std::vector<Token> text = prompt;
  for (std::size_t a = 0; a < v; ++a) {
    if (first_[a] == 0) {
      continue;
    }
    text.push_back(static_cast<Token>(a));
    const std::vector<double> second = after(text);
    std::copy(second.begin(), second.end(), second_.begin() + static_cast<std::ptrdiff_t>(a * v));
    for (std::size_t b = 0; b < v; ++b) {
      if (second[b] == 0) {
        continue;
      }
      text.push_back(static_cast<Token>(b));
      const std::vector<double> third = after(text);
      std::copy(third.begin(), third.end(), third_.begin() + static_cast<std::ptrdiff_t>((a * v + b) * v));
      text.pop_back();
    }
    text.pop_back();
  }
}

double EnumeratedDistribution::joint(Token a, Token b, Token c) const {
  const auto v = static_cast<std::size_t>(vocabulary_);
  const auto i = static_cast<std::size_t>(a);
  const auto j = static_cast<std::size_t>(b);
  const auto k = static_cast<std::size_t>(c);
  return first_[i] * second_[i * v + j] * third_[(i * v + j) * v + k];
}

double chi_square_limit(std::int64_t degrees) {
  constexpr double kNormalQuantile = 4.753424;  // of 1 - 1e-6
  const auto d = static_cast<double>(degrees);
  const double t = 1 - 2 / (9 * d) + kNormalQuantile * std::sqrt(2 / (9 * d));
  return d * t * t * t;
}

double chi_square(const std::vector<double>& observed, const std::vector<double>& expected, std::int64_t& degrees) {
  constexpr double kPoolBelow = 8;
  double statistic = 0;
  double pooled_observed = 0;
  double pooled_expected = 0;
  std::int64_t bins = 0;
  const auto add = [&](double o, double e) {
    statistic += (o - e) * (o - e) / e;
    ++bins;
  };
  for (std::size_t i = 0; i < observed.size(); ++i) {
    if (expected[i] == 0 && observed[i] > 0) {
      return std::numeric_limits<double>::infinity();
    }
    if (expected[i] < kPoolBelow) {
      pooled_observed += observed[i];
      pooled_expected += expected[i];
    } else {
      add(observed[i], expected[i]);
    }
  }
  if (pooled_expected >= kPoolBelow) {
    add(pooled_observed, pooled_expected);
  }
  degrees = bins - 1;
  return statistic;
}

}  // namespace specdec::tests
