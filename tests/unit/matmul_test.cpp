// Values: against sums in double, within the bound of a chain of f32 operations, at sizes that fill no vector.
#include "backend/cpu/matmul.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/odd_floats.h"
#include "tests/support/same_bits.h"
#include "tests/unit/matmul_cases.h"

namespace specdec {
namespace {

using matmul_test::all_kernels;
using matmul_test::float_kernels;
using matmul_test::Kernel;
using matmul_test::kPackedTypes;
using matmul_test::multiply;
using matmul_test::random_floats;
using matmul_test::round_to;
using matmul_test::slices_ending_at;
using matmul_test::Weight;
using tests::kInfinity;
using tests::same_bits;

constexpr std::int64_t kInputSizes[] = {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 47, 63, 64, 65, 97, 127, 251, 257};
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33, 64, 65};

/// The exact sums and the magnitudes that their error is relative to, [rows, out].
struct Exact {
  std::vector<double> sum;
  std::vector<double> magnitude;
};

Exact exact(const Weight& weight, DType dtype, const std::vector<float>& x, std::int64_t rows) {
  Exact result;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < weight.out; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < weight.in; ++k) {
        const double product = static_cast<double>(round_to(dtype, x[static_cast<std::size_t>(r * weight.in + k)])) *
                               round_to(dtype, weight.values[static_cast<std::size_t>(n * weight.in + k)]);
        sum += product;
        magnitude += std::fabs(product);
      }
      result.sum.push_back(sum);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

/// gamma_n = n u / (1 - n u): each product takes part in at most one rounding of its own, one addition for each later input of
/// its slice and one for each level of the tree (Higham, Accuracy and Stability, section 3.1).
double error_factor(const Weight& weight) {
  std::int64_t longest = 0;
  for (const Range& slice : weight.slices) {
    longest = std::max(longest, slice.size());
  }
  const double n = static_cast<double>(longest) + 2 + std::ceil(std::log2(static_cast<double>(weight.slices.size())));
  constexpr double kUnit = 0x1p-24;
  return n * kUnit / (1 - n * kUnit);
}

void expect_within_bound(const Weight& weight, const std::vector<std::int64_t>& row_counts) {
  const std::int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
  const std::vector<float> x = random_floats(static_cast<std::size_t>(most * weight.in), 7);
  const double factor = error_factor(weight);
  const Exact of_f32 = exact(weight, DType::kF32, x, most);
  const Exact of_bf16 = exact(weight, DType::kBF16, x, most);
  for (const Kernel& kernel : float_kernels()) {
    const Exact& want = kernel.dtype == DType::kBF16 ? of_bf16 : of_f32;
    const CpuPackedLinear packed(weight.spec(kernel.dtype), *kernel.kernel);
    for (const std::int64_t rows : row_counts) {
      const std::vector<float> y = multiply(packed, x.data(), rows);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_LE(std::fabs(y[i] - want.sum[i]), factor * want.magnitude[i])
            << kernel.name << ", " << weight.in << " to " << weight.out << ", " << rows << " rows, at " << i;
      }
    }
  }
}

TEST(Matmul, IsWithinTheRoundingBoundAtAwkwardSizes) {
  flush_subnormals_to_zero();
  constexpr std::size_t kCount = std::size(kInputSizes);
  for (std::size_t i = 0; i < kCount; ++i) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{5}, std::size_t{11}}) {
      const std::int64_t out = kInputSizes[(i + shift) % kCount];
      expect_within_bound(Weight(out, kInputSizes[i], static_cast<std::uint32_t>(i)), {1, 4, 5, 16, 17});
    }
  }
}

TEST(Matmul, IsWithinTheRoundingBoundForAnyNumberOfRows) {
  flush_subnormals_to_zero();
  expect_within_bound(Weight(251, 97, 1), {std::begin(kRowCounts), std::end(kRowCounts)});
  expect_within_bound(Weight(97, 130, 2, slices_ending_at({0, 33, 33, 64, 97, 128, 130})),
                      {std::begin(kRowCounts), std::end(kRowCounts)});
}

/// Longer than what is packed at a time (CpuPackedLinear::Run), which ends within, at and beside the ends of slices; threads share the packing.
TEST(Matmul, LongRowsArePackedInRuns) {
  flush_subnormals_to_zero();
  using Ends = std::vector<std::int64_t>;
  for (const Ends& ends : {Ends{1300}, Ends{512, 1024, 1300}, Ends{600, 600, 1112, 1300}, Ends{33, 545, 1057, 1300}}) {
    const Weight weight(20, 1300, 3, slices_ending_at(ends));
    expect_within_bound(weight, {1, 16, 33});
    const std::vector<float> x = random_floats(33 * 1300, 9);
    for (const Kernel& kernel : all_kernels()) {
      const CpuPackedLinear packed(weight.spec(kernel.dtype), *kernel.kernel);
      for (const std::int64_t rows : {1, 16, 33}) {
        EXPECT_TRUE(same_bits(multiply(packed, x.data(), rows, 3), multiply(packed, x.data(), rows)))
            << kernel.name << ", " << rows << " rows, first slice ends at " << ends.front();
      }
    }
  }
}

TEST(Matmul, EmptyInnerDimensionIsMinusZero) {
  for (const Kernel& kernel : all_kernels()) {
    for (const std::size_t slices : {0, 1, 2, 3, 16}) {
      const Weight weight(19, 0, 1);
      LinearSpec spec = weight.spec(kernel.dtype);
      spec.slices.assign(slices, Range{0, 0});
      const CpuPackedLinear packed(spec, *kernel.kernel);
      const std::vector<float> x(1);
      for (const std::int64_t rows : {3, 18}) {
        const std::vector<float> want(static_cast<std::size_t>(rows * 19), -0.0F);
        EXPECT_TRUE(same_bits(multiply(packed, x.data(), rows), want)) << kernel.name << ", " << slices << " slices";
      }
    }
  }
}

TEST(Matmul, RoundsInputsAsTheTypeSays) {
  flush_subnormals_to_zero();
  // Ties both ways, the largest that rounds to infinity, infinities; many rows of one input, so that each is alone in its sum.
  const std::vector<float> x = {
      1.00390625F, 1.01171875F, 1.00390637F, -3.3F,   3.4e38F,  std::numeric_limits<float>::max(),
      kInfinity,   -kInfinity,  1e-39F,      -1e-39F, 1.5e-38F, 0.1F};
  Weight weight(1, 1, 1);
  weight.values = {1.0F};
  for (const Kernel& kernel : float_kernels()) {
    const CpuPackedLinear packed(weight.spec(kernel.dtype), *kernel.kernel);
    const std::vector<float> y = multiply(packed, x.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float flushed = std::fabs(x[i]) < std::numeric_limits<float>::min() ? 0.0F : x[i];
      EXPECT_EQ(y[i], round_to(kernel.dtype, flushed)) << kernel.name << ": " << x[i];
    }
    const float nan = std::nanf("");
    EXPECT_TRUE(std::isnan(multiply(packed, &nan, 1).front())) << kernel.name;
  }
}

/// What is no number stays in the outputs and rows that it belongs to: zeros fill a slice up on both sides of the product.
TEST(Matmul, InfinitiesAndNansStayWhereTheyBelong) {
  flush_subnormals_to_zero();
  constexpr std::int64_t kIn = 35;
  constexpr std::int64_t kOut = 18;
  Weight weight(kOut, kIn, 1, slices_ending_at({1, 34, 35}));
  std::fill(weight.values.begin(), weight.values.end(), 1.0F);
  weight.values[0 * kIn + 0] = kInfinity;
  weight.values[16 * kIn + 33] = std::nanf("");
  weight.values[17 * kIn + 34] = -kInfinity;
  std::vector<float> x(3 * kIn, 1.0F);
  x[1 * kIn + 34] = kInfinity;
  for (const Kernel& kernel : float_kernels()) {
    const CpuPackedLinear packed(weight.spec(kernel.dtype), *kernel.kernel);
    const std::vector<float> y = multiply(packed, x.data(), 3);
    for (std::int64_t i = 0; i < 3 * kOut; ++i) {
      const std::int64_t output = i % kOut;
      const bool second_row = i / kOut == 1;
      if (output == 16) {
        EXPECT_TRUE(std::isnan(y[i])) << kernel.name << " " << i;
        continue;
      }
      const float others = second_row ? kInfinity : static_cast<float>(kIn);
      EXPECT_EQ(y[i], output == 0 ? kInfinity : output == 17 ? -kInfinity : others) << kernel.name << " " << i;
    }
  }
}

/// One matrix in the forms in which checkpoints hold it gives the same bits.
TEST(PackedLinear, ReadsAnyStrideTypeAndAlignment) {
  flush_subnormals_to_zero();
  constexpr std::int64_t kOut = 35;
  constexpr std::int64_t kIn = 21;
  Weight weight(kOut, kIn, 3);
  for (float& value : weight.values) {
    value = std::round(value * 16) / 16;  // exact in every type
  }
  const std::vector<float> x = random_floats(kIn * 3, 4);
  for (const DType source : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto size = static_cast<std::int64_t>(size_of(source));
    for (const bool transposed : {false, true}) {
      // One byte off any alignment, and with a gap after each row.
      const std::int64_t row = transposed ? 1 : kIn + 2;
      const std::int64_t col = transposed ? kOut + 3 : 1;
      std::vector<std::byte> bytes(static_cast<std::size_t>((kOut * row + kIn * col) * size + 1), std::byte{0x7f});
      for (std::int64_t n = 0; n < kOut; ++n) {
        for (std::int64_t k = 0; k < kIn; ++k) {
          const float value = weight.values[static_cast<std::size_t>(n * kIn + k)];
          std::byte* to = bytes.data() + 1 + (n * row + k * col) * size;
          if (source == DType::kF32) {
            std::memcpy(to, &value, sizeof value);
          } else {
            std::uint16_t bits = float_to_bf16(value);
            if (source == DType::kF16) {
              const auto half = static_cast<_Float16>(value);
              std::memcpy(&bits, &half, sizeof bits);
            }
            std::memcpy(to, &bits, sizeof bits);
          }
        }
      }
      for (const DType dtype : kPackedTypes) {
        const CpuPackedLinear plain(weight.spec(dtype), Isa::kScalar);
        const CpuPackedLinear packed({{{bytes.data() + 1, source, kOut, kIn, row, col}}, weight.slices, dtype},
                                     Isa::kScalar);
        EXPECT_TRUE(same_bits(multiply(plain, x.data(), 3), multiply(packed, x.data(), 3)))
            << name_of(source) << (transposed ? " transposed" : "") << " as " << name_of(dtype);
      }
    }
  }
}

TEST(PackedLinear, CountsTheBytesOfOnePass) {
  const Weight weight(17, 33, 1, slices_ending_at({3, 33}));
  // Two panels; a slice takes a multiple of 16 pairs.
  EXPECT_EQ(CpuPackedLinear(weight.spec(DType::kBF16), Isa::kScalar).bytes(), 2U * (16 + 16) * 64);
  EXPECT_EQ(CpuPackedLinear(weight.spec(DType::kF32), Isa::kScalar).bytes(), 2U * 33 * 64);
  // One step of four, eight of them, and the scales of two groups.
  EXPECT_EQ(CpuPackedLinear(weight.spec(DType::kInt8), Isa::kScalar).bytes(), 2U * (1 + 8 + 2) * 64);
}

}  // namespace
}  // namespace specdec
