#include <gtest/gtest.h>

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
TEST_F(GpuBackendTest, EmbeddingsHaveTheCpusBits) { battery::expect_embeddings_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, ElementwiseOperationsHaveTheCpusBits) { battery::expect_elementwise_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, RotationsHaveTheCpusBits) { battery::expect_rotations_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, AttentionHasTheCpusBits) { battery::expect_attention_of_the_cpu(gpu_); }
TEST_F(GpuBackendTest, ALittleSplitAttentionHasTheCpusBits) {
  EmulatedBackend gpu(EmulatedDevice(), {.key_blocks_together = 0});
  battery::expect_a_little_split_attention(gpu);
}
#if !defined(__SANITIZE_THREAD__)
TEST_F(GpuBackendTest, SplitAttentionHasTheCpusBits) {
  EmulatedBackend gpu(EmulatedDevice(), {.key_blocks_together = 0});
  battery::expect_split_attention_of_the_cpu(gpu);
}
#endif
TEST_F(GpuBackendTest, RotatedKeysAreAppended) { battery::expect_rotated_appends(gpu_); }
TEST_F(GpuBackendTest, AMovedSlotIsMovedInAllLayers) { battery::expect_moved_slots(gpu_); }
TEST_F(GpuBackendTest, StatisticsOfSlicesHaveTheCpusBits) { battery::expect_statistics_of_the_cpu(gpu_); }

}  // namespace
}  // namespace specdec
