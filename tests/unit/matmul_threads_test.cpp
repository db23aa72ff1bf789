// How many threads share a product: as many as have weights that are worth a round of them, which takes longer where their cores are far from each other.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "backend/cpu/matmul.h"
#include "tests/unit/matmul_cases.h"

namespace specdec {
namespace {

using matmul_test::Weight;

std::atomic<int> packings;

/// A kernel that multiplies nothing and counts the threads of a product, each of which packs for itself.
const MatmulKernel kCounts = {
    .run = [](const MatmulJob&, std::int64_t, std::int64_t) {},
    .pack = [](const float*, std::int64_t, std::int64_t, std::int64_t, std::byte*) { ++packings; },
    .side_by_side = [](std::int64_t) -> std::int64_t { return 1; },
    .x_step_bytes = 4,
    .max_rows = 16,
    .each_packs = true};

/// Of a team of four, the first `near` of which are near each other, those that multiply `rows` rows with so many KB of bf16.
int threads_of(std::int64_t rows, std::int64_t kilobytes, int near) {
  constexpr std::int64_t kIn = 64;
  const CpuPackedLinear weight(Weight(kilobytes * 1024 / (kIn * 2), kIn, 1).spec(DType::kBF16), kCounts);
  ThreadPool pool(4);
  pool.set_near_threads(near);
  MatmulScratch scratch;
  scratch.reserve(weight, pool.size());
  const std::vector<float> x(static_cast<std::size_t>(rows * kIn));
  std::vector<float> y(static_cast<std::size_t>(rows * weight.out_features()));
  packings = 0;
  matmul(weight, {x.data(), rows, kIn, kIn}, {y.data(), rows, weight.out_features(), weight.out_features()}, scratch,
         pool);
  return packings;
}

TEST(MatmulThreads, EachHasWeightsThatAreWorthARound) {
  EXPECT_EQ(threads_of(1, 64 - 2, 4), 1);
  EXPECT_EQ(threads_of(1, 64, 4), 2);
  EXPECT_EQ(threads_of(16, 96, 4), 3);
}

TEST(MatmulThreads, OfFarCoresEachHasSeveralTimesAsManyOrManyRows) {
  for (const std::int64_t few : {1, 4}) {
    EXPECT_EQ(threads_of(few, 256 - 2, 1), 1);
    EXPECT_EQ(threads_of(few, 256, 1), 2);
    EXPECT_EQ(threads_of(few, 384, 1), 3);
  }
  EXPECT_EQ(threads_of(8, 128 - 2, 1), 1);
  EXPECT_EQ(threads_of(8, 128, 1), 2);
  EXPECT_EQ(threads_of(16, 64 - 2, 1), 1);
  EXPECT_EQ(threads_of(16, 64, 1), 2);
  EXPECT_EQ(threads_of(16, 96, 1), 3) << "not more than near ones";
  EXPECT_EQ(threads_of(1, 64, 2), 2) << "without far ones";
  EXPECT_EQ(threads_of(1, 128, 2), 2) << "not worth the others";
  EXPECT_EQ(threads_of(1, 384, 2), 3);
}

}  // namespace
}  // namespace specdec
