#pragma once

#include <functional>
#include <memory>

#include "backend/row_sampler.h"

/// What every GpuRowSampler must do, bit for bit what the host's does: on an emulated GPU in the unit tests, on a real one in tests/gpu.
namespace specdec::battery {

/// Makes the sampler under test, on rows in the memory of the backend that goes with it.
using MakeSampler = std::function<std::unique_ptr<RowSampler>(const SamplingParams&)>;

/// Random rows, ties, one token, entries of -inf, weights that underflow, in vocabularies of awkward sizes: at every temperature, whatever top-k and
/// top-p cut.
void expect_warps_of_the_host(Backend& gpu, const MakeSampler& make);
/// NaN, infinities: the same fault in the record, and nothing is drawn from such a row.
void expect_faults_of_the_host(Backend& gpu, const MakeSampler& make);
/// Statistics, probabilities from them, single entries.
void expect_sums_of_the_host(Backend& gpu, const MakeSampler& make);
/// Residuals of many kinds of rows and point masses, also where nothing is left.
void expect_residuals_of_the_host(Backend& gpu, const MakeSampler& make);
/// Thousands of uniforms, both ends of the unit interval among them.
void expect_draws_of_the_host(Backend& gpu, const MakeSampler& make);
void expect_argmax_of_the_host(Backend& gpu, const MakeSampler& make);
void expect_what_was_drawn_handed_on(Backend& gpu, const MakeSampler& make);

}  // namespace specdec::battery
