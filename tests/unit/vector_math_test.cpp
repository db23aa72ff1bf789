#include "backend/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "backend/cpu/row_ops.h"
#include "tests/support/odd_floats.h"
#include "tests/unit/backend_fixture.h"

namespace specdec {
namespace {

using tests::kInfinity;
using tests::kNan;

std::vector<float> random_values(std::int64_t count, unsigned seed, float spread) {
  return Matrix::random(1, count, seed, spread).all();
}

TEST(VectorMath, EmptySpans) {
  EXPECT_EQ(max_of({}), -kInfinity);
  EXPECT_EQ(argmax_of({}), -1);
  EXPECT_EQ(sum_of({}), 0.0);
}

TEST(VectorMath, ArgmaxTakesTheLowestOfTies) {
  for (const std::int64_t count : kAwkwardSizes) {
    for (std::int64_t first = 0; first < count; ++first) {
      std::vector<float> values(static_cast<std::size_t>(count), -1.0F);
      values[first] = 2.0F;
      values.back() = 2.0F;
      EXPECT_EQ(argmax_of(values), first);
      EXPECT_EQ(max_of(values), 2.0F);
    }
  }
}

TEST(VectorMath, ArgmaxOfSpecialValues) {
  EXPECT_EQ(argmax_of(std::vector<float>{kNan, 1.0F, kNan, 3.0F, kNan}), 3);
  EXPECT_EQ(argmax_of(std::vector<float>{kNan, kNan}), 0);
  EXPECT_EQ(argmax_of(std::vector<float>{kNan, -kInfinity, -kInfinity}), 1);
  EXPECT_EQ(argmax_of(std::vector<float>{-1.0F, -0.0F, 0.0F}), 1) << "zeros are equal";
  // The lanes behind the end are zero, and must not win.
  EXPECT_EQ(argmax_of(std::vector<float>(17, -5.0F)), 0);
  EXPECT_EQ(max_of(std::vector<float>(17, -5.0F)), -5.0F);
}

TEST(VectorMath, SumIsGoodToDoublePrecision) {
  for (const std::int64_t count : {1, 16, 17, 1000, 4099}) {
    const std::vector<float> values = random_values(count, 21, 10.0F);
    long double exact = 0;
    double size = 0;
    for (const float v : values) {
      exact += v;
      size += std::abs(v);
    }
    const double bound = (static_cast<double>(count) / 16 + 5) * 0x1p-53 * size;
    EXPECT_NEAR(sum_of(values), static_cast<double>(exact), bound) << count;
  }
}

TEST(VectorMath, ScaledExpIsTheSoftmaxWeight) {
  const std::vector<float> logits = random_values(333, 22, 6.0F);
  const float temperature = 0.7F;
  const float max_z = max_of(logits) / temperature;
  std::vector<float> weights(logits.size());
  scaled_exp(logits, temperature, max_z, weights);
  EXPECT_EQ(max_of(weights), 1.0F) << "division is monotonic, so the largest weight is exp(0)";
  EXPECT_EQ(argmax_of(weights), argmax_of(logits));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float z = logits[i] / temperature - max_z;
    EXPECT_NEAR(weights[i], std::exp(static_cast<double>(z)), 1.01 * 0x1p-23 * weights[i] + 0x1p-125);
  }
  std::vector<float> in_place = logits;
  scaled_exp(in_place, temperature, max_z, in_place);
  EXPECT_EQ(in_place, weights);
}

TEST(VectorMath, EveryInstructionSetGivesTheSameBits) {
  for (const std::int64_t count : {1, 15, 16, 17, 33, 1000, 4096, 4099}) {
    const std::vector<float> x = random_values(count, 23, 8.0F);
    const RowOps& scalar = row_ops(Isa::kScalar);
    std::vector<float> expected(x.size());
    scalar.scaled_exp(x.data(), 1.3F, 9.0F, expected.data(), count);
    for (const Isa isa : all_isas()) {
      const RowOps& ops = row_ops(isa);
      std::vector<float> mine(x.size());
      ops.scaled_exp(x.data(), 1.3F, 9.0F, mine.data(), count);
      EXPECT_EQ(mine, expected) << name_of(isa) << " " << count;
      EXPECT_EQ(ops.sum(x.data(), count), scalar.sum(x.data(), count)) << name_of(isa) << " " << count;
      EXPECT_EQ(ops.max(x.data(), count), scalar.max(x.data(), count)) << name_of(isa) << " " << count;
      EXPECT_EQ(ops.find(x.data(), count, x.back()), scalar.find(x.data(), count, x.back())) << name_of(isa);
      EXPECT_EQ(ops.sum_scaled_exp(x.data(), 1.3F, 9.0F, count), scalar.sum(expected.data(), count)) << name_of(isa);
    }
  }
}

}  // namespace
}  // namespace specdec
