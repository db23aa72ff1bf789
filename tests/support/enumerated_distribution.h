#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "backend/sampler.h"
#include "models/config.h"

namespace specdec::tests {

/// The distribution of the first three tokens that a model writes after `prompt`, by enumeration of all prefixes, in double precision
/// and with a warp written for this test alone (temperature, then top-k, then top-p; ties to the lowest id).
class EnumeratedDistribution {
 public:
  EnumeratedDistribution(const std::filesystem::path& model, const std::vector<Token>& prompt,
                         const SamplingParams& sampling, DType dtype);

  std::int64_t vocabulary() const { return vocabulary_; }
  double first(Token a) const { return first_[static_cast<std::size_t>(a)]; }
  /// P(a, b, c).
  double joint(Token a, Token b, Token c) const;

 private:
  std::int64_t vocabulary_ = 0;
  std::vector<double> first_;   ///< [V]
  std::vector<double> second_;  ///< [V, V], given the first
  std::vector<double> third_;   ///< [V, V, V], given the first two
};

/// Upper 1e-6 quantile of chi-square with `degrees` of freedom (Wilson and Hilferty 1931; within 0.5% for degrees >= 20).
double chi_square_limit(std::int64_t degrees);

/// Pearson's statistic of `observed` counts against `expected` counts; bins with an expectation below 8 are pooled. `degrees` receives the
/// number of bins used less one. A count where nothing is expected gives infinity.
double chi_square(const std::vector<double>& observed, const std::vector<double>& expected, std::int64_t& degrees);

}  // namespace specdec::tests
