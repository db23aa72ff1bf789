#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "tests/support/emulated_device.h"
#include "tests/support/gpu_battery.h"

/// The kernels of backend/cuda and all that leads to them, without a GPU. What the hardware does by itself (tensor cores' own order of
/// addition, the memory's) is tests/gpu's.
namespace specdec {
namespace {

class GpuBackendTest : public testing::Test {
 protected:
  EmulatedBackend gpu_{EmulatedDevice(), {}};
};

TEST_F(GpuBackendTest, NormsHaveTheCpusBits) { battery::expect_norms_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, ANormMayWriteOverItsInput) { battery::expect_norms_in_place(gpu_); }
TEST_F(GpuBackendTest, NormsOfSumsHaveTheCpusBits) { battery::expect_norms_of_sums(gpu_); }
TEST_F(GpuBackendTest, ElementwiseOperationsHaveTheCpusBits) { battery::expect_elementwise_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, RotationsHaveTheCpusBits) { battery::expect_rotations_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, AttentionHasTheCpusBits) { battery::expect_attention_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, AMovedSlotIsMovedInAllLayers) { battery::expect_moved_slots(gpu_); }
TEST_F(GpuBackendTest, StatisticsOfSlicesHaveTheCpusBits) { battery::expect_statistics_of_the_cpu(gpu_); }

TEST_F(GpuBackendTest, ProductsOnTensorCores) { battery::expect_products(gpu_); }
TEST_F(GpuBackendTest, RanksAddUpToTheSameBits) { battery::expect_ranks_add_up(gpu_); }

TEST_F(GpuBackendTest, ProductsInTheCpusOrderHaveItsBits) {
  if (detect_isa() == Isa::kScalar) {
    GTEST_SKIP() << "this CPU does not fuse multiply-adds";
  }
  EmulatedBackend in_order(EmulatedDevice(), {.cpu_order = true});
  battery::expect_products_of_the_cpu(in_order, DType::kBF16);
  battery::expect_products_of_the_cpu(gpu_, DType::kF32);
  battery::expect_products(in_order);
  battery::expect_ranks_add_up(in_order);
}

}  // namespace
}  // namespace specdec
