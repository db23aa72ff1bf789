// int8 weights and inputs: what they are quantised to and how their products are summed, told here a second time with integers of 64 bits and
// doubles; every kernel and the reference backend give those bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/matmul.h"
#include "backend/int8.h"
#include "tests/support/odd_floats.h"
#include "tests/support/same_bits.h"
#include "tests/unit/matmul_cases.h"

namespace specdec {
namespace {

using matmul_test::fixed_tree;
using matmul_test::int8_kernels;
using matmul_test::Kernel;
using matmul_test::multiply;
using matmul_test::random_floats;
using matmul_test::slices_ending_at;
using matmul_test::Weight;
using tests::kInfinity;
using tests::kNan;
using tests::same_bits;

/// A group in integers of a type in which nothing overflows, and its scale.
struct Group {
  std::vector<std::int64_t> integers;
  float scale = 0;
};

/// Division and rounding by the C library; a quotient of floats that is rounded to a double first rounds to the same float (53 >= 2 * 24 + 2 bits).
Group quantised(std::span<const float> values) {
  double largest = 0;
  bool finite = true;
  for (const float value : values) {
    finite = finite && std::isfinite(value);
    largest = std::fmax(largest, std::fabs(static_cast<double>(value)));
  }
  Group group{.integers = std::vector<std::int64_t>(values.size()), .scale = static_cast<float>(largest / 127)};
  if (!finite) {
    group.scale = kNan;
  } else if (largest / 127 < std::numeric_limits<float>::min()) {
    group.scale = 0;
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto quotient = static_cast<float>(static_cast<double>(values[i]) / static_cast<double>(group.scale));
      group.integers[i] = std::lrint(quotient);
    }
  }
  return group;
}

/// y [rows, out] as docs/numerics.md says: groups of 128 inputs that begin with each slice, in order and from zero, then the tree.
std::vector<float> product(const Weight& weight, const std::vector<float>& x, std::int64_t rows) {
  std::vector<float> y;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < weight.out; ++n) {
      std::vector<float> leaves;
      for (const Range& slice : weight.slices) {
        float sum = slice.empty() ? -0.0F : 0.0F;
        for (std::int64_t begin = slice.begin; begin < slice.end; begin += 128) {
          const auto size = static_cast<std::size_t>(std::min<std::int64_t>(128, slice.end - begin));
          const Group a = quantised({x.data() + r * weight.in + begin, size});
          const Group b = quantised({weight.values.data() + n * weight.in + begin, size});
          std::int64_t dot = 0;
          for (std::size_t i = 0; i < size; ++i) {
            dot += a.integers[i] * b.integers[i];
          }
          sum = std::fma(static_cast<float>(dot) * a.scale, b.scale, sum);
        }
        leaves.push_back(sum);
      }
      y.push_back(fixed_tree(leaves));
    }
  }
  return y;
}

void expect_bits(const Weight& weight, const std::vector<float>& x, std::int64_t rows, const std::string& what) {
  const std::vector<float> want = product(weight, x, rows);
  const LinearSpec spec = weight.spec(DType::kInt8);
  for (const Kernel& one : int8_kernels()) {
    EXPECT_TRUE(same_bits(multiply(CpuPackedLinear(spec, *one.kernel), x.data(), rows), want))
        << one.name << ", " << what;
  }
  ReferenceBackend reference;
  std::vector<float> y(want.size(), kNan);
  reference.matmul(*reference.pack(spec), {x.data(), rows, weight.in, weight.in},
                   {y.data(), rows, weight.out, weight.out}, {});
  EXPECT_TRUE(same_bits(y, want)) << "reference, " << what;
}

class MatmulInt8 : public ::testing::Test {
 protected:
  void SetUp() override { flush_subnormals_to_zero(); }
};

TEST_F(MatmulInt8, HasTheBitsOfTheDefinitionAtAwkwardSizes) {
  for (const std::int64_t in :
       {1, 2, 3, 4, 5, 7, 8, 15, 31, 33, 63, 65, 97, 124, 127, 128, 129, 131, 255, 256, 260, 641}) {
    const Weight weight(in % 5 * 16 + in % 17 + 1, in, static_cast<std::uint32_t>(in));
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 9, 14, 15, 16, 17, 33}) {
      expect_bits(weight, random_floats(static_cast<std::size_t>(in * rows), 7), rows,
                  std::to_string(in) + " inputs, " + std::to_string(rows) + " rows");
    }
  }
}

TEST_F(MatmulInt8, GroupsBeginWithEachSlice) {
  for (const auto& ends : {std::vector<std::int64_t>{128, 256, 300},
                           {1, 129, 131, 131, 300},
                           {0, 0, 300, 300},
                           {100, 200, 300},
                           {128, 129, 257, 300},
                           {2, 5, 9, 14, 20, 27, 35, 44, 54, 65, 77, 90, 104, 119, 135, 300},
                           {130, 700, 1300}}) {
    const Weight weight(37, ends.back(), 3, slices_ending_at(ends));
    expect_bits(weight, random_floats(static_cast<std::size_t>(ends.back() * 6), 4), 6,
                "first slice ends at " + std::to_string(ends.front()));
  }
}

TEST_F(MatmulInt8, WidelySpreadNumbersHaveScalesOfTheirOwn) {
  Weight weight(35, 400, 5, slices_ending_at({130, 400}));
  std::vector<float> x = random_floats(400 * 5, 6);
  for (std::size_t i = 0; i < weight.values.size(); ++i) {
    weight.values[i] *= std::ldexp(1.0F, static_cast<int>(i % 71) - 35);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= std::ldexp(1.0F, static_cast<int>(i / 64 % 41) - 20);
  }
  expect_bits(weight, x, 5, "spread");
}

/// The largest sums of two, four and 128 products that there are, of either sign: VPMADDUBSW would saturate at 32767, and floats round from 2^24 on.
TEST_F(MatmulInt8, LargestIntegersNeitherSaturateNorRound) {
  for (const float w : {1.0F, -1.0F}) {
    for (const float a : {1.0F, -1.0F}) {
      Weight weight(16, 256, 1);
      std::ranges::fill(weight.values, w);
      const std::vector<float> x(256 * 3, a);
      const float group = 127 * 127 * 128 * (1 / 127.0F) * (1 / 127.0F);
      const std::vector<float> y = multiply(CpuPackedLinear(weight.spec(DType::kInt8), Isa::kScalar), x.data(), 3);
      EXPECT_NEAR(y[0], w * a * 2 * group, 1e-3F);
      expect_bits(weight, x, 3, "all alike");
      weight.values[5] = -w;
      expect_bits(weight, x, 3, "all alike but one");
    }
  }
}

TEST_F(MatmulInt8, ARowThatIsNotFiniteIsNan) {
  const Weight weight(21, 300, 8, slices_ending_at({140, 140, 300}));
  for (const float odd : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (const std::int64_t place : {0, 127, 139, 140, 299}) {
      std::vector<float> x = random_floats(300 * 4, 9);
      const std::vector<float> before = product(weight, x, 4);
      x[static_cast<std::size_t>(2 * 300 + place)] = odd;
      for (const Kernel& one : int8_kernels()) {
        const std::vector<float> y = multiply(CpuPackedLinear(weight.spec(DType::kInt8), *one.kernel), x.data(), 4);
        for (std::size_t i = 0; i < y.size(); ++i) {
          if (i / 21 == 2) {
            EXPECT_TRUE(std::isnan(y[i])) << one.name << ": " << odd << " at " << place;
          } else {
            EXPECT_EQ(y[i], before[i]) << one.name << ": " << odd << " at " << place;
          }
        }
      }
    }
  }
}

TEST_F(MatmulInt8, ZerosAndTinyNumbersAreZero) {
  Weight weight(17, 129, 2);
  const std::vector<float> x(129 * 2, 3.0F);
  for (const float tiny : {0.0F, -0.0F, 1e-40F, -1e-38F, 126 * std::numeric_limits<float>::min()}) {
    std::ranges::fill(weight.values, tiny);
    const std::vector<float> zeros(17 * 2, 0.0F);
    for (const Kernel& one : int8_kernels()) {
      EXPECT_TRUE(same_bits(multiply(CpuPackedLinear(weight.spec(DType::kInt8), *one.kernel), x.data(), 2), zeros))
          << one.name << ", weights " << tiny;
    }
    const Weight ones(17, 129, 2);
    const std::vector<float> tinies(129 * 2, tiny);
    for (const Kernel& one : int8_kernels()) {
      EXPECT_TRUE(same_bits(multiply(CpuPackedLinear(ones.spec(DType::kInt8), *one.kernel), tinies.data(), 2), zeros))
          << one.name << ", inputs " << tiny;
    }
  }
  std::ranges::fill(weight.values, 128 * std::numeric_limits<float>::min());
  expect_bits(weight, x, 2, "the smallest scale");
}

/// By hand: a tie goes to the even integer, and the largest magnitude is 127 exactly.
TEST(QuantiseGroup, RoundsToNearestEven) {
  const std::vector<float> values = {127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 126.5F, -126.5F, -127, 0.49999997F};
  std::vector<std::int8_t> integers(values.size());
  EXPECT_EQ(quantise_group(values, integers.data()), 1.0F);
  EXPECT_EQ(integers, (std::vector<std::int8_t>{127, 0, 2, 2, 0, -2, -2, 126, -126, -127, 0}));
}

TEST(QuantiseGroup, IsOffByHalfAScaleAtMost) {
  flush_subnormals_to_zero();
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<float> values = random_floats(128, seed);
    for (float& value : values) {
      value = std::ldexp(value, static_cast<int>(seed * 5) - 120);
    }
    std::vector<std::int8_t> integers(values.size());
    const float scale = quantise_group(values, integers.data());
    const Group want = quantised(values);
    EXPECT_EQ(scale, want.scale);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(integers[i], want.integers[i]);
      // The scale and the quotient are rounded once each: 127 * 2^-23 of a scale together.
      EXPECT_LE(std::fabs(static_cast<double>(integers[i]) * scale - values[i]), scale * (0.5 + 127 * 0x1p-23));
    }
  }
}

/// Against the product of the numbers themselves: each is off by at most half its group's scale, whatever the kernels and the definition share.
TEST_F(MatmulInt8, LiesAsFarFromTheExactProductAsItsScalesAllow) {
  for (const auto& ends : {std::vector<std::int64_t>{700}, {40, 300, 300, 512, 700}}) {
    const Weight weight(33, 700, 12, slices_ending_at(ends));
    const std::vector<float> x = random_floats(700 * 3, 13);
    const std::vector<float> y = multiply(CpuPackedLinear(weight.spec(DType::kInt8), detect_isa()), x.data(), 3);
    for (std::int64_t i = 0; i < 3 * 33; ++i) {
      const float* const row = x.data() + i / 33 * 700;
      const float* const w = weight.values.data() + i % 33 * 700;
      double exact = 0;
      double bound = 0;
      for (const Range& slice : weight.slices) {
        for (std::int64_t begin = slice.begin; begin < slice.end; begin += 128) {
          const std::int64_t end = std::min(begin + 128, slice.end);
          double row_most = 0;
          double weight_most = 0;
          for (std::int64_t k = begin; k < end; ++k) {
            row_most = std::fmax(row_most, std::fabs(row[k]));
            weight_most = std::fmax(weight_most, std::fabs(w[k]));
          }
          for (std::int64_t k = begin; k < end; ++k) {
            exact += static_cast<double>(row[k]) * w[k];
            bound += std::fabs(row[k]) * weight_most / 254 + std::fabs(w[k]) * row_most / 254 +
                     row_most * weight_most / (254.0 * 254.0);
          }
        }
      }
      ASSERT_LE(std::fabs(y[static_cast<std::size_t>(i)] - exact), bound * (1 + 0x1p-12)) << i;
    }
  }
}

}  // namespace
}  // namespace specdec
