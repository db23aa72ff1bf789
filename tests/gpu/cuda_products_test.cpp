#include <gtest/gtest.h>

#include <memory>

#include "backend/cuda/cuda_backend.h"
#include "tests/support/product_battery.h"

/// On a real GPU what the unit tests find on an emulated one (tests/unit/gpu_products_test.cpp).
namespace specdec {
namespace {

TEST(CudaProductsTest, OfBf16) { battery::expect_products(*make_cuda_backend({}), DType::kBF16); }
TEST(CudaProductsTest, OfFp16) { battery::expect_products(*make_cuda_backend({}), DType::kF16); }
TEST(CudaProductsTest, OfManyOutputs) {
  battery::expect_wide_products(*make_cuda_backend({}), DType::kBF16);
  battery::expect_wide_products(*make_cuda_backend({}), DType::kF16);
}
TEST(CudaProductsTest, OfALibraryAndOfVectorUnitsAreNear) {
  for (const CudaProducts products : {CudaProducts::kCublas, CudaProducts::kVector}) {
    const std::unique_ptr<Backend> gpu = make_cuda_backend({.products = products});
    battery::expect_near_products(*gpu, DType::kBF16);
    battery::expect_near_products(*gpu, DType::kF16);
  }
}
TEST(CudaProductsTest, OfGates) {
  battery::expect_gated_products(*make_cuda_backend({}), DType::kBF16, true);
  battery::expect_gated_products(*make_cuda_backend({}), DType::kF16, true);
  battery::expect_gated_products(*make_cuda_backend({.fuse = false}), DType::kBF16, false);
}
TEST(CudaProductsTest, RanksAddUpToTheSameBits) { battery::expect_ranks_add_up(*make_cuda_backend({})); }

TEST(CudaProductsTest, InTheCpusOrderHaveItsBits) {
  const std::unique_ptr<Backend> in_order = make_cuda_backend({.products = CudaProducts::kCpuOrder});
  battery::expect_products_of_the_cpu(*in_order, DType::kBF16);
  battery::expect_products_of_the_cpu(*in_order, DType::kF32);
  battery::expect_products(*in_order, DType::kBF16);
  battery::expect_ranks_add_up(*in_order);
}

}  // namespace
}  // namespace specdec
