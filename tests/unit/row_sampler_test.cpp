#include "backend/row_sampler.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/emulated_device.h"
#include "tests/support/philox_kernel.h"
#include "tests/support/sampling_battery.h"

/// Sampling by the kernels of backend/cuda, without a GPU.
namespace specdec {
namespace {

class GpuRowSamplerTest : public ::testing::Test {
 protected:
  EmulatedDevice device_;
  EmulatedBackend gpu_{EmulatedDevice(), {}};
  /// Blocks of few threads, of which a CPU is sooner done; one test has those of a GPU.
  battery::MakeSampler small_blocks_ = [this](const SamplingParams& params) {
    return std::make_unique<EmulatedRowSampler>(device_, params);
  };
};

TEST_F(GpuRowSamplerTest, WarpsHaveTheHostsBits) { battery::expect_warps_of_the_host(gpu_, small_blocks_); }
TEST_F(GpuRowSamplerTest, BrokenRowsHaveTheHostsFaults) { battery::expect_faults_of_the_host(gpu_, small_blocks_); }
TEST_F(GpuRowSamplerTest, SumsHaveTheHostsBits) { battery::expect_sums_of_the_host(gpu_, small_blocks_); }
TEST_F(GpuRowSamplerTest, ResidualsHaveTheHostsBits) { battery::expect_residuals_of_the_host(gpu_, small_blocks_); }
TEST_F(GpuRowSamplerTest, TheHostsTokensAreDrawn) { battery::expect_draws_of_the_host(gpu_, small_blocks_); }
TEST_F(GpuRowSamplerTest, WhatWasDrawnIsHandedOn) { battery::expect_what_was_drawn_handed_on(gpu_, small_blocks_); }
TEST_F(GpuRowSamplerTest, TheHostsTokenIsTheLargest) { battery::expect_argmax_of_the_host(gpu_, small_blocks_); }

TEST_F(GpuRowSamplerTest, BlocksAsLargeAsAGpus) {
  battery::expect_faults_of_the_host(gpu_,
                                     [this](const SamplingParams& params) { return gpu_.make_row_sampler(params); });
}

TEST_F(GpuRowSamplerTest, PhiloxIsTheHosts) {
  std::vector<battery::PhiloxNumber> numbers(128);
  device_.launch<&battery::philox_numbers<EmulatedGpu>>({.x = 2, .threads = 64}, numbers.data());
  for (std::uint32_t n = 0; n < numbers.size(); ++n) {
    EXPECT_EQ(numbers[n].words, battery::philox_number(n).words);
    EXPECT_EQ(numbers[n].uniform, battery::philox_number(n).uniform);
  }
}

}  // namespace
}  // namespace specdec
