#include <gtest/gtest.h>

#include <memory>

#include "backend/cuda/cuda_backend.h"
#include "backend/row_sampler.h"
#include "tests/gpu/philox_on_device.h"
#include "tests/support/sampling_battery.h"

/// On a real GPU what the unit tests find on an emulated one (tests/unit/row_sampler_test.cpp).
namespace specdec {
namespace {

class CudaRowSamplerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> gpu_ = make_cuda_backend({});
  battery::MakeSampler make_ = [this](const SamplingParams& params) { return gpu_->make_row_sampler(params); };
};

TEST_F(CudaRowSamplerTest, WarpsHaveTheHostsBits) { battery::expect_warps_of_the_host(*gpu_, make_); }
TEST_F(CudaRowSamplerTest, BrokenRowsHaveTheHostsFaults) { battery::expect_faults_of_the_host(*gpu_, make_); }
TEST_F(CudaRowSamplerTest, SumsHaveTheHostsBits) { battery::expect_sums_of_the_host(*gpu_, make_); }
TEST_F(CudaRowSamplerTest, ResidualsHaveTheHostsBits) { battery::expect_residuals_of_the_host(*gpu_, make_); }
TEST_F(CudaRowSamplerTest, TheHostsTokensAreDrawn) { battery::expect_draws_of_the_host(*gpu_, make_); }
TEST_F(CudaRowSamplerTest, WhatWasDrawnIsHandedOn) { battery::expect_what_was_drawn_handed_on(*gpu_, make_); }
TEST_F(CudaRowSamplerTest, TheHostsTokenIsTheLargest) { battery::expect_argmax_of_the_host(*gpu_, make_); }

TEST_F(CudaRowSamplerTest, PhiloxIsTheHosts) {
  const auto numbers = battery::philox_on_device(64, 256);
  for (std::uint32_t n = 0; n < numbers.size(); ++n) {
    ASSERT_EQ(numbers[n].words, battery::philox_number(n).words);
    ASSERT_EQ(numbers[n].uniform, battery::philox_number(n).uniform);
  }
}

}  // namespace
}  // namespace specdec
