// Operations on rows against the reference, at awkward sizes, on every instruction set.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/roundoff.h"
#include "tests/unit/backend_fixture.h"

namespace specdec {
namespace {

using tests::kRoundoff;
constexpr std::int64_t kRowCount = 3;

INSTANTIATE_TEST_SUITE_P(Isas, CpuBackendTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(CpuBackendTest, RmsNorm) {
  for (const std::int64_t cols : kAwkwardSizes) {
    const Matrix x = Matrix::random(kRowCount, cols, 1, 3.0F, 5);
    const Matrix weight = Matrix::random(1, cols, 2);
    Matrix mine(kRowCount, cols, 5);
    Matrix same(kRowCount, cols, 5);
    Matrix expected(kRowCount, cols, 5);
    cpu.rms_norm(x.view(), weight.data(), 1e-5F, mine.view(), stream);
    scalar.rms_norm(x.view(), weight.data(), 1e-5F, same.view(), stream);
    reference.rms_norm(x.view(), weight.data(), 1e-5F, expected.view(), stream);
    EXPECT_EQ(mine.all(), same.all()) << cols;
    // A sum of `cols` squares is within (cols + 1) eps of itself however it is ordered, its root within half of that; both sides
    // err; then mean, + eps, root, reciprocal, two products.
    const double relative = (static_cast<double>(cols) + 8.0) * kRoundoff;
    for (std::int64_t r = 0; r < kRowCount; ++r) {
      for (std::int64_t i = 0; i < cols; ++i) {
        EXPECT_NEAR(mine.at(r, i), expected.at(r, i), relative * std::abs(expected.at(r, i))) << cols << " " << i;
      }
    }
    Matrix in_place = x;
    cpu.rms_norm(in_place.view(), weight.data(), 1e-5F, in_place.view(), stream);
    for (std::int64_t r = 0; r < kRowCount; ++r) {
      EXPECT_EQ(in_place.row(r), mine.row(r));
    }
  }
}

TEST_P(CpuBackendTest, LayerNorm) {
  for (const std::int64_t cols : kAwkwardSizes) {
    const Matrix x = Matrix::random(kRowCount, cols, 3, 2.0F, 1);
    const Matrix weight = Matrix::random(1, cols, 4);
    const Matrix bias = Matrix::random(1, cols, 5);
    Matrix mine(kRowCount, cols, 1);
    Matrix same(kRowCount, cols, 1);
    Matrix expected(kRowCount, cols, 1);
    cpu.layer_norm(x.view(), weight.data(), bias.data(), 1e-5F, mine.view(), stream);
    scalar.layer_norm(x.view(), weight.data(), bias.data(), 1e-5F, same.view(), stream);
    reference.layer_norm(x.view(), weight.data(), bias.data(), 1e-5F, expected.view(), stream);
    EXPECT_EQ(mine.all(), same.all()) << cols;
    for (std::int64_t r = 0; r < kRowCount; ++r) {
      // The mean errs by up to cols eps max|x| on either side; divided by the deviation that is an absolute error of the result.
      double largest = 0;
      double mean = 0;
      for (std::int64_t i = 0; i < cols; ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(x.at(r, i))));
        mean += x.at(r, i) / static_cast<double>(cols);
      }
      double variance = 1e-5;
      for (std::int64_t i = 0; i < cols; ++i) {
        variance += (x.at(r, i) - mean) * (x.at(r, i) - mean) / static_cast<double>(cols);
      }
      const double terms = static_cast<double>(cols) + 8.0;
      for (std::int64_t i = 0; i < cols; ++i) {
        const double normal = std::abs(x.at(r, i) - mean) / std::sqrt(variance);
        const double bound = 2 * terms * kRoundoff * (largest / std::sqrt(variance) + normal) * (1 + normal) *
                                 std::abs(weight.at(0, i)) +
                             4 * kRoundoff * std::abs(bias.at(0, i));
        EXPECT_NEAR(mine.at(r, i), expected.at(r, i), bound) << cols << " " << i;
      }
    }
  }
}

TEST_P(CpuBackendTest, Rope) {
  constexpr std::int64_t kPositions = 9;
  for (const std::int64_t dim : kAwkwardSizes) {
    for (const std::int64_t heads : {1, 3}) {
      const std::int64_t half = dim / 2;
      Matrix cos(kPositions, half);
      Matrix sin(kPositions, half);
      for (std::int64_t i = 0; i < kPositions * half; ++i) {
        cos.data()[i] = static_cast<float>(std::cos(0.37 * static_cast<double>(i)));
        sin.data()[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
      }
      const std::vector<std::int32_t> position = {8, 0, 3};
      const Matrix x = Matrix::random(kRowCount, heads * dim, 6, 1.0F, 3);
      Matrix mine = x;
      Matrix same = x;
      Matrix expected = x;
      cpu.rope(mine.view(), dim, cos.data(), sin.data(), {.position = position}, stream);
      scalar.rope(same.view(), dim, cos.data(), sin.data(), {.position = position}, stream);
      reference.rope(expected.view(), dim, cos.data(), sin.data(), {.position = position}, stream);
      EXPECT_EQ(mine.all(), same.all()) << dim;
      for (std::int64_t r = 0; r < kRowCount; ++r) {
        for (std::int64_t i = 0; i < heads * dim; ++i) {
          // Three roundings on either side of terms no larger than the pair.
          const std::int64_t at = i % dim;
          const std::int64_t partner = at < half ? i + half : at < 2 * half ? i - half : i;
          const double size = std::abs(x.at(r, i)) + std::abs(x.at(r, partner));
          EXPECT_NEAR(mine.at(r, i), expected.at(r, i), 6 * kRoundoff * size) << dim << " " << i;
        }
      }
    }
  }
}

TEST_P(CpuBackendTest, SiluMul) {
  for (const std::int64_t cols : kAwkwardSizes) {
    const Matrix gate_up = Matrix::random(kRowCount, 2 * cols, 7, 8.0F, 2);
    Matrix mine(kRowCount, cols, 1);
    Matrix same(kRowCount, cols, 1);
    Matrix expected(kRowCount, cols, 1);
    cpu.silu_mul(gate_up.view(), mine.view(), stream);
    scalar.silu_mul(gate_up.view(), same.view(), stream);
    reference.silu_mul(gate_up.view(), expected.view(), stream);
    EXPECT_EQ(mine.all(), same.all()) << cols;
    for (std::int64_t r = 0; r < kRowCount; ++r) {
      for (std::int64_t i = 0; i < cols; ++i) {
        // Each side: exp within 1.01 ulp (2 eps), sum, division, product.
        EXPECT_NEAR(mine.at(r, i), expected.at(r, i), 12 * kRoundoff * std::abs(expected.at(r, i))) << cols << " " << i;
      }
    }
  }
}

TEST_P(CpuBackendTest, GeluTanh) {
  for (const std::int64_t cols : kAwkwardSizes) {
    const Matrix x = Matrix::random(kRowCount, cols, 8, 3.0F, 2);
    Matrix mine = x;
    Matrix same = x;
    Matrix expected = x;
    cpu.gelu_tanh(mine.view(), stream);
    scalar.gelu_tanh(same.view(), stream);
    reference.gelu_tanh(expected.view(), stream);
    EXPECT_EQ(mine.all(), same.all()) << cols;
    for (std::int64_t r = 0; r < kRowCount; ++r) {
      for (std::int64_t i = 0; i < cols; ++i) {
        // tanh within 3 eps and its argument u within 6 eps |u| (sech^2 u |u| < 0.45) on either side, all relative to |x| since 1 + tanh
        // may cancel.
        EXPECT_NEAR(mine.at(r, i), expected.at(r, i), 12 * kRoundoff * std::abs(x.at(r, i))) << cols << " " << i;
      }
    }
  }
}

TEST_P(CpuBackendTest, AdditionsAreExactlyTheReferences) {
  for (const std::int64_t cols : kAwkwardSizes) {
    const Matrix y = Matrix::random(kRowCount, cols, 9, 1.0F, 4);
    const Matrix bias = Matrix::random(1, cols, 10);
    Matrix mine = Matrix::random(kRowCount, cols, 11, 1.0F, 2);
    Matrix expected = mine;
    cpu.add(mine.view(), y.view(), stream);
    reference.add(expected.view(), y.view(), stream);
    EXPECT_EQ(mine.all(), expected.all()) << cols;
    cpu.add_bias(mine.view(), bias.data(), stream);
    reference.add_bias(expected.view(), bias.data(), stream);
    EXPECT_EQ(mine.all(), expected.all()) << cols;
  }
}

TEST_P(CpuBackendTest, SliceMaxIsExactlyTheReferences) {
  for (const std::int64_t cols : kAwkwardSizes) {
    Matrix logits = Matrix::random(kRowCount, cols, 12, 1.0F, 3);
    // Ties across lanes and vectors: few distinct values.
    for (float& x : std::span(logits.data(), logits.all().size())) {
      x = std::round(x);
    }
    const std::vector<Range> slices = {{0, 0}, {0, cols / 3}, {cols / 3, cols}, {cols, cols}};
    std::vector<SliceMax> mine(kRowCount * slices.size());
    std::vector<SliceMax> expected(mine.size());
    cpu.slice_max(logits.view(), slices, mine, stream);
    reference.slice_max(logits.view(), slices, expected, stream);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].value, expected[i].value) << cols << " " << i;
      EXPECT_EQ(mine[i].index, expected[i].index) << cols << " " << i;
    }
  }
}

TEST_P(CpuBackendTest, SliceSum) {
  for (const std::int64_t cols : kAwkwardSizes) {
    const Matrix logits = Matrix::random(kRowCount, cols, 13, 5.0F, 3);
    const std::vector<Range> slices = {{0, cols / 3}, {cols / 3, cols}, {cols, cols}};
    std::vector<SliceSum> mine(kRowCount * slices.size());
    std::vector<SliceSum> same(mine.size());
    std::vector<SliceSum> expected(mine.size());
    cpu.slice_sum(logits.view(), 0.8F, slices, mine, stream);
    scalar.slice_sum(logits.view(), 0.8F, slices, same, stream);
    reference.slice_sum(logits.view(), 0.8F, slices, expected, stream);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].max, same[i].max);
      EXPECT_EQ(mine[i].sum, same[i].sum);
      EXPECT_EQ(mine[i].max, expected[i].max) << "division is monotonic";
      // Terms within 4 eps (exp on either side), the reference's sum within cols eps.
      EXPECT_NEAR(mine[i].sum, expected[i].sum, (static_cast<double>(cols) + 4) * kRoundoff * expected[i].sum) << cols;
    }
  }
}

TEST_P(CpuBackendTest, ARowDoesNotDependOnThoseBesideIt) {
  constexpr std::int64_t kMany = 16;
  constexpr std::int64_t kCols = 97;
  const Matrix x = Matrix::random(kMany, 2 * kCols, 14);
  const Matrix weight = Matrix::random(1, 2 * kCols, 15);
  Matrix norm(kMany, 2 * kCols);
  Matrix gated(kMany, kCols);
  cpu.rms_norm(x.view(), weight.data(), 1e-6F, norm.view(), stream);
  cpu.silu_mul(x.view(), gated.view(), stream);
  for (std::int64_t r = 0; r < kMany; ++r) {
    Matrix one(1, 2 * kCols);
    Matrix one_gated(1, kCols);
    cpu.rms_norm(x.view().slice_rows(r, 1), weight.data(), 1e-6F, one.view(), stream);
    cpu.silu_mul(x.view().slice_rows(r, 1), one_gated.view(), stream);
    EXPECT_EQ(one.row(0), norm.row(r));
    EXPECT_EQ(one_gated.row(0), gated.row(r));
  }
}

TEST_P(CpuBackendTest, ThreadsChangeNoBit) {
  constexpr std::int64_t kMany = 67;
  constexpr std::int64_t kCols = 1031;  // large enough to be shared among threads
  CpuBackend three(GetParam(), 3);
  const Matrix gate_up = Matrix::random(kMany, 2 * kCols, 16);
  Matrix one_thread(kMany, kCols);
  Matrix three_threads(kMany, kCols);
  cpu.silu_mul(gate_up.view(), one_thread.view(), stream);
  three.silu_mul(gate_up.view(), three_threads.view(), stream);
  EXPECT_EQ(one_thread.all(), three_threads.all());
}

}  // namespace
}  // namespace specdec
