#include "backend/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/gpu_battery.h"

/// On a real GPU what the unit tests find on an emulated one (tests/unit/gpu_backend_test.cpp).
namespace specdec {
namespace {

class CudaBackendTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> gpu_ = make_cuda_backend({});
};

TEST_F(CudaBackendTest, NormsHaveTheCpusBits) { battery::expect_norms_of_the_cpu(*gpu_); }
TEST_F(CudaBackendTest, ANormMayWriteOverItsInput) { battery::expect_norms_in_place(*gpu_); }
TEST_F(CudaBackendTest, NormsOfSumsHaveTheCpusBits) { battery::expect_norms_of_sums(*gpu_); }
TEST_F(CudaBackendTest, EmbeddingsHaveTheCpusBits) { battery::expect_embeddings_of_the_cpu(*gpu_); }
TEST_F(CudaBackendTest, ElementwiseOperationsHaveTheCpusBits) { battery::expect_elementwise_of_the_cpu(*gpu_); }
TEST_F(CudaBackendTest, RotationsHaveTheCpusBits) { battery::expect_rotations_of_the_cpu(*gpu_); }
TEST_F(CudaBackendTest, AttentionHasTheCpusBits) { battery::expect_attention_of_the_cpu(*gpu_); }
TEST_F(CudaBackendTest, ALittleSplitAttentionHasTheCpusBits) {
  battery::expect_a_little_split_attention(*make_cuda_backend({.key_blocks_together = 0}));
}
TEST_F(CudaBackendTest, SplitAttentionHasTheCpusBits) {
  battery::expect_split_attention_of_the_cpu(*make_cuda_backend({.key_blocks_together = 0}));
}
TEST_F(CudaBackendTest, RotatedKeysAreAppended) { battery::expect_rotated_appends(*gpu_); }
TEST_F(CudaBackendTest, AMovedSlotIsMovedInAllLayers) { battery::expect_moved_slots(*gpu_); }
TEST_F(CudaBackendTest, StatisticsOfSlicesHaveTheCpusBits) { battery::expect_statistics_of_the_cpu(*gpu_); }

TEST_F(CudaBackendTest, RandomWeightsAreThoseOfTheHost) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    battery::expect_random_weights(*gpu_, dtype);
  }
}

}  // namespace
}  // namespace specdec
