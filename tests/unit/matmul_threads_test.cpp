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

/// Of a team of four, those that multiply `rows` rows with so many KB of bf16.
int threads_of(std::int64_t rows, std::int64_t kilobytes, bool far) {
  constexpr std::int64_t kIn = 64;
  const CpuPackedLinear weight(Weight(kilobytes * 1024 / (kIn * 2), kIn, 1).spec(DType::kBF16), kCounts);
  ThreadPool pool(4);
  pool.set_far(far);
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
  EXPECT_EQ(threads_of(1, 64 - 2, false), 1);
  EXPECT_EQ(threads_of(1, 64, false), 2);
  EXPECT_EQ(threads_of(16, 96, false), 3);
}

TEST(MatmulThreads, OfFarCoresEachHasSeveralTimesAsManyOrManyRows) {
  for (const std::int64_t few : {1, 4}) {
    EXPECT_EQ(threads_of(few, 256 - 2, true), 1);
    EXPECT_EQ(threads_of(few, 256, true), 2);
    EXPECT_EQ(threads_of(few, 384, true), 3);
  }
  EXPECT_EQ(threads_of(8, 128 - 2, true), 1);
  EXPECT_EQ(threads_of(8, 128, true), 2);
  EXPECT_EQ(threads_of(16, 64 - 2, true), 1);
  EXPECT_EQ(threads_of(16, 64, true), 2);
  EXPECT_EQ(threads_of(16, 96, true), 3) << "not more than near ones";
}

}  // namespace
}  // namespace specdec
