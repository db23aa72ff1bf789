#include "tests/support/product_battery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backend/cuda/tensor_choice.h"
#include "parallel/tree.h"
#include "tests/support/gpu_matrix.h"

namespace specdec::battery {
namespace {

/// Inputs [begin, end) of a matrix [outputs, stride]; slices are counted from there.
LinearSpec spec_of(const Values& weights, std::int64_t outputs, std::int64_t stride, Range inputs,
                   std::vector<Range> slices, DType dtype) {
  return {.stacked = {{reinterpret_cast<const std::byte*>(weights.data() + inputs.begin), DType::kF32, outputs,
                       inputs.size(), stride, 1}},
          .slices = std::move(slices),
          .dtype = dtype};
}

Values multiply(Backend& backend, const LinearSpec& spec, const Values& x, std::int64_t rows) {
  const auto weight = backend.pack(spec);
  Matrix in(backend, rows, weight->in_features(), x);
  Matrix out(backend, rows, weight->out_features());
  backend.matmul(*weight, in.rows(), out.rows(), {});
  return out.values();
}

struct Product {
  std::int64_t outputs;
  std::int64_t inputs;
  std::int64_t rows;
  std::vector<Range> slices;
};

std::vector<Product> products() {
  return {{16, 16, 1, {{0, 16}}},
          {40, 50, 5, {{0, 50}}},
          {150, 33, 6, {{0, 3}, {3, 3}, {3, 20}, {20, 33}}},
          {33, 70, 9, {{0, 8}, {8, 9}, {9, 9}, {9, 40}, {40, 70}}},
          {17, 600, 16, {{0, 600}}},
          {48, 64, 20, {{0, 32}, {32, 64}}},
          {24, 320, 9, {{0, 320}}},
          {33, 96, 3, {{0, 32}, {32, 32}, {32, 96}}},
          {16, 560, 66, {{0, 272}, {272, 544}, {544, 560}}}};
}

/// For which other kernels are taken; too many blocks for threads of a host.
std::vector<Product> wide_products() {
  return {{cuda::kFewOutputs + 9, 640, 5, {{0, 320}, {320, 640}}},
          {cuda::kFewOutputs + 9, 640, 15, {{0, 640}}},
          {cuda::kManyOutputs + 4, 256, 7, {{0, 128}, {128, 256}}},
          {cuda::kPackedOutputs + 4, 256, 10, {{0, 128}, {128, 256}}},
          {cuda::kPackedOutputs + 4, 320, 66, {{0, 320}}},
          {cuda::kPackedOutputs + 20, 1024, 34, {{0, 1024}}}};
}

float rounded(float value, DType type) {
  return type == DType::kF16 ? f16_to_float(float_to_f16(value)) : bf16_to_float(float_to_bf16(value));
}

}  // namespace

void expect_products_of_the_cpu(Backend& gpu, DType dtype) {
  for (const Product& p : products()) {
    const Values weights = random_values(p.outputs * p.inputs, 50);
    const Values x = random_values(p.rows * p.inputs, 51);
    const LinearSpec spec = spec_of(weights, p.outputs, p.inputs, {0, p.inputs}, p.slices, dtype);
    expect_alike(
        gpu, [&](Backend& backend) { return multiply(backend, spec, x, p.rows); }, name_of(dtype));
  }
}

namespace {

/// Within the bound of any order of additions.
void expect_near(const Values& y, const Product& p, const Values& weights, const Values& x, DType dtype) {
  for (std::int64_t r = 0; r < p.rows; ++r) {
    for (std::int64_t n = 0; n < p.outputs; ++n) {
      double exact = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < p.inputs; ++k) {
        const double term =
            double{rounded(weights[n * p.inputs + k], dtype)} * double{rounded(x[r * p.inputs + k], dtype)};
        exact += term;
        magnitude += std::abs(term);
      }
      // Products of bf16 and of fp16 are exact in fp32; an addition rounds or, in some tensor cores, cuts off.
      const double bound = 2 * static_cast<double>(p.inputs) * 0x1p-23 * magnitude;
      ASSERT_NEAR(y[r * p.outputs + n], exact, bound) << p.inputs << " inputs, row " << r << ", output " << n;
    }
  }
}

void expect_product(Backend& gpu, const Product& p, DType dtype, bool rows_are_their_own = true) {
  const Values weights = random_values(p.outputs * p.inputs, 1);
  const Values x = random_values(p.rows * p.inputs, 2);
  const LinearSpec spec = spec_of(weights, p.outputs, p.inputs, {0, p.inputs}, p.slices, dtype);
  const Values y = multiply(gpu, spec, x, p.rows);
  expect_near(y, p, weights, x, dtype);
  if (!rows_are_their_own) {
    return;
  }
  // A row's bits are its own, whichever block of whichever kernel it is in.
  for (const Range& some : {Range{0, 1}, Range{p.rows - 1, p.rows}, Range{1, 8}, Range{2, 14}, Range{5, 24}}) {
    if (some.begin < 0 || some.end > p.rows || some.size() == p.rows) {
      continue;
    }
    const Values few = multiply(gpu, spec, {x.begin() + some.begin * p.inputs, x.end()}, some.size());
    EXPECT_TRUE(std::equal(few.begin(), few.end(), y.begin() + some.begin * p.outputs))
        << some.size() << " rows by themselves, of " << p.outputs << " outputs and " << p.inputs << " inputs";
  }
}

}  // namespace

void expect_products(Backend& gpu, DType dtype) {
  for (const Product& p : products()) {
    expect_product(gpu, p, dtype);
  }
}
void expect_near_products(Backend& gpu, DType dtype) {
  for (const Product& p : products()) {
    expect_product(gpu, p, dtype, false);
  }
  expect_product(gpu, {48, 320, 1, {{0, 320}}}, dtype, false);
}
void expect_wide_products(Backend& gpu, DType dtype) {
  for (const Product& p : wide_products()) {
    expect_product(gpu, p, dtype);
  }
}

void expect_gated_products(Backend& gpu, DType dtype, bool at_once) {
  struct Gated {
    std::int64_t pairs;
    std::int64_t rows;
    std::vector<Range> slices;
    bool bias;
  };
  // Few outputs and more, pairs that fill no tile, inputs that are packed, blocks of many rows.
  for (const Gated& p : {Gated{8, 1, {{0, 16}}, false}, Gated{19, 5, {{0, 48}}, true}, Gated{3, 9, {{0, 33}}, true},
                         Gated{40, 16, {{0, 32}, {32, 32}, {32, 320}}, false}, Gated{21, 20, {{0, 17}, {17, 64}}, true},
                         Gated{27, 66, {{0, 304}}, true}, Gated{cuda::kFewOutputs / 2 + 5, 2, {{0, 32}}, true},
                         Gated{cuda::kFewOutputs / 2 + 1, 10, {{0, 16}}, false}}) {
    const std::int64_t inputs = p.slices.back().end;
    const Values weights = random_values(2 * p.pairs * inputs, 11);
    const auto half = [&](std::int64_t first) {
      return WeightView{
          reinterpret_cast<const std::byte*>(weights.data() + first * inputs), DType::kF32, p.pairs, inputs, inputs, 1};
    };
    LinearSpec spec{.stacked = {half(0), half(p.pairs)}, .slices = p.slices, .dtype = dtype};
    const auto apart = gpu.pack(spec);
    spec.gated = true;
    const auto paired = gpu.pack(spec);
    Matrix x(gpu, p.rows, inputs, random_values(p.rows * inputs, 12));
    Matrix bias(gpu, 1, 2 * p.pairs, random_values(2 * p.pairs, 13));
    Matrix product(gpu, p.rows, 2 * p.pairs);
    Matrix expected(gpu, p.rows, p.pairs);
    gpu.matmul(*apart, x.rows(), product.rows(), {});
    const Values before_bias = product.values();
    if (p.bias) {
      gpu.add_bias(product.rows(), bias.data(), {});
    }
    gpu.silu_mul(product.rows(), expected.rows(), {});

    const Values untouched(before_bias.size(), 7.0F);
    Matrix between(gpu, p.rows, 2 * p.pairs, untouched);
    Matrix out(gpu, p.rows, p.pairs);
    gpu.matmul_silu_mul(*paired, x.rows(), p.bias ? bias.data() : nullptr, between.rows(), out.rows(), {});
    EXPECT_TRUE(same_bits(expected.values(), out.values())) << p.pairs << " pairs, " << p.rows << " rows";
    EXPECT_EQ(between.values() == untouched, at_once) << p.pairs << " pairs, " << p.rows << " rows";
    gpu.matmul(*paired, x.rows(), between.rows(), {});
    EXPECT_TRUE(same_bits(before_bias, between.values())) << p.pairs << " pairs by themselves, " << p.rows << " rows";
  }
}

void expect_ranks_add_up(Backend& gpu) {
  constexpr std::int64_t kOutputs = 24;
  constexpr std::int64_t kRows = 3;
  // Unequal slices, one of them empty and one of several leaves.
  const std::vector<std::int64_t> ends = {32, 64, 64, 96, 700, 732, 764, 800};
  const std::int64_t inputs = ends.back();
  const Values weights = random_values(kOutputs * inputs, 5);
  const Values x = random_values(kRows * inputs, 6);
  const auto begin_of = [&](std::size_t slice) { return slice == 0 ? 0 : ends[slice - 1]; };
  const auto product = [&](std::size_t first, std::size_t count) {
    const Range mine{begin_of(first), ends[first + count - 1]};
    std::vector<Range> slices;
    for (std::size_t s = first; s < first + count; ++s) {
      slices.push_back({begin_of(s) - mine.begin, ends[s] - mine.begin});
    }
    Values my_x;
    for (std::int64_t r = 0; r < kRows; ++r) {
      my_x.insert(my_x.end(), x.begin() + r * inputs + mine.begin, x.begin() + r * inputs + mine.end);
    }
    return multiply(gpu, spec_of(weights, kOutputs, inputs, mine, std::move(slices), DType::kBF16), my_x, kRows);
  };
  const Values whole = product(0, ends.size());
  for (const std::size_t ranks : {2U, 4U, 8U}) {
    std::vector<Values> parts;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      parts.push_back(product(rank * ends.size() / ranks, ends.size() / ranks));
    }
    const std::vector<std::span<const float>> leaves(parts.begin(), parts.end());
    Values sum(whole.size());
    tree_sum(leaves, std::span(sum));
    EXPECT_TRUE(same_bits(whole, sum)) << ranks << " ranks";
  }
}

}  // namespace specdec::battery
