// What is lossless hangs on: the bits of an output depend on its row of x and its row of the weight, on nothing else.
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_kernel.h"
#include "backend/error.h"
#include "tests/support/same_bits.h"
#include "tests/unit/matmul_cases.h"

namespace specdec {
namespace {

using matmul_test::all_kernels;
using matmul_test::fixed_tree;
using matmul_test::float_kernels;
using matmul_test::Kernel;
using matmul_test::multiply;
using matmul_test::Order;
using matmul_test::random_floats;
using matmul_test::round_to;
using matmul_test::slices_ending_at;
using matmul_test::Weight;
using tests::same_bits;

constexpr std::int64_t kSomeOutputs = 251;
constexpr std::int64_t kManyRows = 81;

/// Like the slices of a feed-forward of 24 units, and odd ones, and empty ones in every place.
const std::vector<std::vector<Range>> kCuts = {
    {{0, 257}},
    slices_ending_at({0, 1, 3, 40, 40, 41, 64, 97, 130, 130, 130, 200, 231, 231, 257, 257}),
    slices_ending_at({16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 257}),
    slices_ending_at({100, 101, 257}),
    slices_ending_at({0, 0, 257, 257, 257}),
};

/// For what takes minutes with a sanitizer, which asks where memory is touched and by whom: the cut with the most kinds of slices.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::span<const std::vector<Range>> kCutsOfLongTests(&kCuts[1], 1);
#else
const std::span<const std::vector<Range>> kCutsOfLongTests = kCuts;
#endif

class MatmulBits : public ::testing::Test {
 protected:
  void SetUp() override { flush_subnormals_to_zero(); }

  /// Calls test(packed, weight, kernel) for every kernel and cut.
  template <typename Test>
  static void for_all(Test test) {
    for_all(kCuts, test);
  }
  template <typename Test>
  static void for_all(std::span<const std::vector<Range>> cuts, Test test) {
    for (const std::vector<Range>& cut : cuts) {
      const Weight weight(kSomeOutputs, 257, 11, cut);
      for (const Kernel& kernel : all_kernels()) {
        test(CpuPackedLinear(weight.spec(kernel.dtype), *kernel.kernel), weight, kernel);
      }
    }
  }

  const std::vector<float> x_ = random_floats(kManyRows * 257, 12);
};

TEST_F(MatmulBits, ARowDoesNotDependOnTheOthers) {
  for_all(kCutsOfLongTests, [&](const CpuPackedLinear& packed, const Weight& weight, const Kernel& kernel) {
    std::vector<float> alone;
    for (std::int64_t r = 0; r < kManyRows; ++r) {
      const std::vector<float> y = multiply(packed, x_.data() + r * weight.in, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const std::int64_t rows : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33, 64, 65, 81}) {
      const std::vector<float> want(alone.begin(), alone.begin() + rows * kSomeOutputs);
      ASSERT_TRUE(same_bits(multiply(packed, x_.data(), rows), want)) << kernel.name << ", " << rows << " rows";
    }
  });
}

TEST_F(MatmulBits, ThreadsChangeNothing) {
  for_all(kCutsOfLongTests, [&](const CpuPackedLinear& packed, const Weight& weight, const Kernel& kernel) {
    MatmulKernel packs_otherwise = *kernel.kernel;
    packs_otherwise.each_packs = !packs_otherwise.each_packs;
    const CpuPackedLinear otherwise(weight.spec(kernel.dtype), packs_otherwise);
    for (const std::int64_t rows : {1, 5, 17, 65}) {
      const std::vector<float> one = multiply(packed, x_.data(), rows, 1);
      for (const int threads : {2, 3}) {
        EXPECT_TRUE(same_bits(multiply(packed, x_.data(), rows, threads), one)) << kernel.name;
        EXPECT_TRUE(same_bits(multiply(otherwise, x_.data(), rows, threads), one)) << kernel.name;
      }
    }
  });
}

TEST_F(MatmulBits, ScratchForFewerThreadsIsRefused) {
  // A thread's own rows are fewer than those that all read, so that it takes more than one to need more room.
  constexpr int kTeam = 9;
  constexpr std::int64_t kWide = 16 * 8 * kTeam;
  const Weight weight(kWide, 512, 1);
  MatmulKernel kernel = kMatmulScalarF32;
  kernel.each_packs = true;
  kernel.max_rows = 8;
  const CpuPackedLinear packed(weight.spec(DType::kF32), kernel);
  MatmulScratch scratch;
  scratch.reserve(packed, 1);
  ThreadPool pool(kTeam);
  std::vector<float> x(512, 1.0F);
  std::vector<float> y(kWide);
  EXPECT_THROW(matmul(packed, {x.data(), 1, 512, 512}, {y.data(), 1, kWide, kWide}, scratch, pool), Error);
  scratch.reserve(packed, kTeam);
  EXPECT_NO_THROW(matmul(packed, {x.data(), 1, 512, 512}, {y.data(), 1, kWide, kWide}, scratch, pool));
}

TEST_F(MatmulBits, AShardOfTheOutputsEqualsItsPartOfTheWhole) {
  for_all([&](const CpuPackedLinear& packed, const Weight& weight, const Kernel& kernel) {
    for (const std::int64_t rows : {1, 5}) {
      const std::vector<float> whole = multiply(packed, x_.data(), rows);
      for (const Range shard : {Range{0, 1}, Range{5, 6}, Range{3, 40}, Range{16, 80}, Range{200, 251}}) {
        LinearSpec spec = weight.spec(kernel.dtype);
        WeightView& view = spec.stacked.front();
        view.data += shard.begin * weight.in * 4;
        view.rows = shard.size();
        const std::vector<float> part = multiply(CpuPackedLinear(spec, *kernel.kernel), x_.data(), rows);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t n = 0; n < shard.size(); ++n) {
            ASSERT_EQ(part[r * shard.size() + n], whole[r * kSomeOutputs + shard.begin + n])
                << kernel.name << ", outputs from " << shard.begin;
          }
        }
      }
    }
  });
}

TEST_F(MatmulBits, StackedWeightsEqualEachAlone) {
  const Weight a(21, 33, 1);
  const Weight b(40, 33, 2);
  for (const Kernel& kernel : all_kernels()) {
    const CpuPackedLinear both({{a.view(), b.view()}, a.slices, kernel.dtype}, *kernel.kernel);
    std::vector<float> want = multiply(CpuPackedLinear(a.spec(kernel.dtype), *kernel.kernel), x_.data(), 1);
    const std::vector<float> second = multiply(CpuPackedLinear(b.spec(kernel.dtype), *kernel.kernel), x_.data(), 1);
    want.insert(want.end(), second.begin(), second.end());
    EXPECT_TRUE(same_bits(multiply(both, x_.data(), 1), want)) << kernel.name;
  }
}

/// Of matrices that fill their panels each thread takes its share of each, once the cache has them.
TEST_F(MatmulBits, SharesOfStackedWeightsEqualEachAlone) {
  const std::vector<Weight> weights = {Weight(16 * 24, 129, 1), Weight(16 * 8, 129, 2), Weight(16 * 9, 129, 3)};
  for (const Kernel& kernel : all_kernels()) {
    LinearSpec spec = weights.front().spec(kernel.dtype);
    for (const Weight& other : std::span(weights).subspan(1)) spec.stacked.push_back(other.view());
    const CpuPackedLinear stacked(spec, *kernel.kernel);
    ASSERT_EQ(stacked.stacked_panels().size(), weights.size());
    for (const std::int64_t rows : {1, 5, 16, 20}) {
      std::vector<std::vector<float>> each;
      for (const Weight& weight : weights) {
        each.push_back(multiply(CpuPackedLinear(weight.spec(kernel.dtype), *kernel.kernel), x_.data(), rows));
      }
      std::vector<float> want;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < weights.size(); ++i) {
          const auto row = each[i].begin() + r * weights[i].out;
          want.insert(want.end(), row, row + weights[i].out);
        }
      }
      for (const int threads : {1, 2, 3}) {
        EXPECT_TRUE(same_bits(multiply(stacked, x_.data(), rows, threads), want))
            << kernel.name << ", " << rows << " rows, " << threads << " threads";
      }
    }
  }
}

/// 16 slices on one rank, or cut over 2, 4, 8, 16 ranks whose results meet in the upper part of the tree.
TEST_F(MatmulBits, RanksThatAreAPowerOfTwoShareOneTree) {
  for_all([&](const CpuPackedLinear& packed, const Weight& weight, const Kernel& kernel) {
    if (weight.slices.size() != 16) {
      return;
    }
    constexpr std::int64_t kFew = 3;
    const std::vector<float> whole = multiply(packed, x_.data(), kFew);
    for (const std::size_t ranks : {2, 4, 8, 16}) {
      std::vector<std::vector<float>> partial;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::size_t first = 16 / ranks * rank;
        const std::int64_t begin = weight.slices[first].begin;
        LinearSpec spec = weight.spec(kernel.dtype);
        spec.slices.assign(weight.slices.begin() + first, weight.slices.begin() + first + 16 / ranks);
        WeightView& view = spec.stacked.front();
        view.data += begin * 4;
        view.cols = spec.slices.back().end - begin;
        for (Range& slice : spec.slices) {
          slice = {slice.begin - begin, slice.end - begin};
        }
        std::vector<float> x(static_cast<std::size_t>(kFew * view.cols) + 1);
        for (std::int64_t r = 0; r < kFew; ++r) {
          std::copy_n(x_.begin() + r * weight.in + begin, view.cols, x.begin() + r * view.cols);
        }
        partial.push_back(multiply(CpuPackedLinear(spec, *kernel.kernel), x.data(), kFew));
      }
      std::vector<float> combined;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        std::vector<float> leaves;
        for (const std::vector<float>& rank : partial) {
          leaves.push_back(rank[i]);
        }
        combined.push_back(fixed_tree(leaves));
      }
      ASSERT_TRUE(same_bits(combined, whole)) << kernel.name << ", " << ranks << " ranks";
    }
  });
}

/// A slice in turn, of a pair of bf16 the second first, as VDPBF16PS does. A product of two bf16 is exact in f32, so fused and separate
/// multiply-adds agree there; f32 weights tell them apart.
float sum_in_turn(const Range& slice, const float* x, const float* w, const Kernel& kernel) {
  float sum = slice.empty() ? -0.0F : 0.0F;
  for (std::int64_t k = 0; k < slice.size(); ++k) {
    std::int64_t at = slice.begin + k;
    if (kernel.dtype == DType::kBF16) {
      const bool alone = k % 2 == 0 && k + 1 == slice.size();
      at += alone ? 0 : (k % 2 == 0 ? 1 : -1);
    }
    const float input = round_to(kernel.dtype, x[at]);
    const float factor = round_to(kernel.dtype, w[at]);
    sum = kernel.order == Order::kSeparate ? sum + input * factor : std::fma(input, factor, sum);
  }
  return sum;
}

/// A slice by 32 inputs, of which the even and the odd ones are summed apart, as TDPBF16PS does.
float sum_by_tiles(const Range& slice, const float* x, const float* w) {
  float sum = slice.empty() ? -0.0F : 0.0F;
  for (std::int64_t tile = slice.begin; tile < slice.end; tile += 32) {
    float part[2] = {};
    for (std::int64_t at = tile; at < std::min(tile + 32, slice.end); ++at) {
      float& of = part[(at - tile) % 2];
      of = std::fma(round_to(DType::kBF16, x[at]), round_to(DType::kBF16, w[at]), of);
    }
    sum += part[0] + part[1];
  }
  return sum;
}

/// The order itself, spelled out: slices from zero, then the tree. What a CPU does within a tile is its own and no promise of ours: there
/// it is only recorded in how many outputs it is not what the manual says.
TEST_F(MatmulBits, SumsAreMadeInTheStatedOrder) {
  std::int64_t unlike_the_manual = 0;
  for_all([&](const CpuPackedLinear& packed, const Weight& weight, const Kernel& kernel) {
    if (kernel.order == Order::kGroups) {
      return;  // matmul_int8_test.cpp
    }
    const std::vector<float> y = multiply(packed, x_.data(), 2);
    for (std::int64_t i = 0; i < 2 * kSomeOutputs; ++i) {
      const float* x = x_.data() + i / kSomeOutputs * weight.in;
      const float* w = weight.values.data() + i % kSomeOutputs * weight.in;
      std::vector<float> leaves;
      for (const Range& slice : weight.slices) {
        const bool tiles = kernel.order == Order::kEmulatedTiles || kernel.order == Order::kTiles;
        leaves.push_back(tiles ? sum_by_tiles(slice, x, w) : sum_in_turn(slice, x, w, kernel));
      }
      if (kernel.order == Order::kTiles) {
        unlike_the_manual += y[i] == fixed_tree(leaves) ? 0 : 1;
        continue;
      }
      ASSERT_EQ(y[i], fixed_tree(leaves)) << kernel.name << ", " << weight.slices.size() << " slices, output " << i;
    }
  });
  RecordProperty("outputs_unlike_the_manual", std::to_string(unlike_the_manual));
}

/// Sums of small integers are exact in any order, so that every element is seen to be multiplied once, with its own partner.
TEST_F(MatmulBits, SmallIntegersAreSummedExactly) {
  constexpr std::int64_t kFew = 33;
  std::vector<float> x(static_cast<std::size_t>(kFew * 257));
  std::transform(x_.begin(), x_.begin() + kFew * 257, x.begin(), [](float value) { return std::round(value * 16); });
  for (const std::vector<Range>& cut : kCuts) {
    Weight weight(kSomeOutputs, 257, 11, cut);
    for (float& value : weight.values) {
      value = std::round(value * 16);
    }
    std::vector<float> want;
    for (std::int64_t i = 0; i < kFew * kSomeOutputs; ++i) {
      want.push_back(std::inner_product(x.begin() + i / kSomeOutputs * 257, x.begin() + (i / kSomeOutputs + 1) * 257,
                                        weight.values.begin() + i % kSomeOutputs * 257, 0.0F));
    }
    for (const Kernel& kernel : float_kernels()) {
      const CpuPackedLinear packed(weight.spec(kernel.dtype), *kernel.kernel);
      for (const std::int64_t rows : {1, 5, 16, 17, 33}) {
        const std::vector<float> y = multiply(packed, x.data(), rows);
        ASSERT_EQ(y, std::vector<float>(want.begin(), want.begin() + rows * kSomeOutputs)) << kernel.name;
      }
    }
  }
}

/// Which kernel is the faster differs between CPUs; this is why choosing it changes nothing.
TEST_F(MatmulBits, Vdpbf16psMakesTheSameSums) {
  if (detect_isa() < Isa::kAvx512Bf16) {
    GTEST_SKIP() << "this CPU has no AVX512-BF16";
  }
  for (const std::vector<Range>& cut : kCuts) {
    const Weight weight(kSomeOutputs, 257, 11, cut);
    const CpuPackedLinear plain(weight.spec(DType::kBF16), Isa::kAvx2);
    const CpuPackedLinear packed(weight.spec(DType::kBF16), kMatmulVdpbf16);
    const CpuPackedLinear one_stream(weight.spec(DType::kBF16), kMatmulVdpbf16OneStream);
    for (const std::int64_t rows : {1, 4, 5, 11, 12, 15, 16, 17, 33}) {
      const std::vector<float> want = multiply(plain, x_.data(), rows);
      EXPECT_TRUE(same_bits(multiply(packed, x_.data(), rows), want)) << rows << " rows";
      EXPECT_TRUE(same_bits(multiply(one_stream, x_.data(), rows), want)) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace specdec
