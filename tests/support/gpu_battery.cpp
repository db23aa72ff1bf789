#include "tests/support/gpu_battery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "parallel/tree.h"

namespace specdec::battery {
namespace {

using Values = std::vector<float>;

Values random_values(std::int64_t count, unsigned seed) {
  Values values(static_cast<std::size_t>(count));
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::ranges::generate(values, [&] { return normal(engine); });
  return values;
}

testing::AssertionResult same_bits(const Values& expected, const Values& found) {
  for (std::size_t i = 0; i < expected.size() && i < found.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(found[i])) {
      return testing::AssertionFailure() << "element " << i << ": expected " << expected[i] << ", found " << found[i];
    }
  }
  return expected.size() == found.size() ? testing::AssertionSuccess() : testing::AssertionFailure() << "sizes differ";
}

/// Rows in the memory of a backend.
class Matrix {
 public:
  Matrix(Backend& backend, std::int64_t rows, std::int64_t cols)
      : backend_(backend), memory_(backend.allocate(rows * cols * sizeof(float))), shape_{nullptr, rows, cols, cols} {}
  Matrix(Backend& backend, std::int64_t rows, std::int64_t cols, const Values& values) : Matrix(backend, rows, cols) {
    backend.upload(memory_->data(), std::as_bytes(std::span(values)).first(memory_->bytes()), {});
    backend.synchronize({});
  }
  Rows rows() { return {memory_->floats(), shape_.rows, shape_.cols, shape_.stride}; }
  float* data() { return memory_->floats(); }
  Values values() {
    Values out(static_cast<std::size_t>(shape_.rows * shape_.cols));
    backend_.download(std::as_writable_bytes(std::span(out)), memory_->data(), {});
    backend_.synchronize({});
    return out;
  }

 private:
  Backend& backend_;
  std::unique_ptr<Buffer> memory_;
  Rows shape_;
};

/// The same operation on both: what the CPU finds is expected.
void expect_alike(Backend& gpu, const std::function<Values(Backend&)>& operation, std::string_view what) {
  CpuBackend cpu(detect_isa(), 1);
  EXPECT_TRUE(same_bits(operation(cpu), operation(gpu))) << what;
}

}  // namespace

void expect_norms_of_the_cpu(Backend& gpu) {
  for (const std::int64_t cols : {1, 15, 37, 64, 200, 4100}) {
    const auto norm = [&](Backend& backend, bool centred) {
      Matrix x(backend, 3, cols, random_values(3 * cols, 1));
      Matrix weight(backend, 1, cols, random_values(cols, 2));
      Matrix bias(backend, 1, cols, random_values(cols, 3));
      Matrix y(backend, 3, cols);
      if (centred) {
        backend.layer_norm(x.rows(), weight.data(), bias.data(), 1e-5F, y.rows(), {});
      } else {
        backend.rms_norm(x.rows(), weight.data(), 1e-5F, y.rows(), {});
      }
      return y.values();
    };
    expect_alike(
        gpu, [&](Backend& backend) { return norm(backend, false); }, "rms_norm");
    expect_alike(
        gpu, [&](Backend& backend) { return norm(backend, true); }, "layer_norm");
  }
}

void expect_norms_of_sums(Backend& gpu) {
  constexpr std::int64_t kCols = 300;
  const auto norm = [&](Backend& backend, bool centred) {
    Matrix x(backend, 2, kCols, random_values(2 * kCols, 70));
    Matrix y(backend, 2, kCols, random_values(2 * kCols, 71));
    Matrix weight(backend, 1, kCols, random_values(kCols, 72));
    Matrix z(backend, 2, kCols);
    if (centred) {
      backend.add_layer_norm(x.rows(), y.rows(), weight.data(), weight.data(), 1e-5F, z.rows(), {});
    } else {
      backend.add_rms_norm(x.rows(), y.rows(), weight.data(), 1e-5F, z.rows(), {});
    }
    Values both = x.values();
    std::ranges::copy(z.values(), std::back_inserter(both));
    return both;
  };
  expect_alike(
      gpu, [&](Backend& backend) { return norm(backend, false); }, "add_rms_norm");
  expect_alike(
      gpu, [&](Backend& backend) { return norm(backend, true); }, "add_layer_norm");
}

void expect_norms_in_place(Backend& gpu) {
  const auto norm = [](Backend& backend) {
    Matrix x(backend, 2, 100, random_values(200, 4));
    Matrix weight(backend, 1, 100, random_values(100, 5));
    backend.rms_norm(x.rows(), weight.data(), 1e-5F, x.rows(), {});
    return x.values();
  };
  expect_alike(gpu, norm, "rms_norm");
}

void expect_elementwise_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kCols = 75;
  Values wide = random_values(4 * kCols, 6);
  for (float& value : wide) {
    value *= 30;  // both ends of exp
  }
  const Values some = random_values(2 * kCols, 7);
  const Values others = random_values(2 * kCols, 8);
  expect_alike(
      gpu,
      [&](Backend& backend) {
        Matrix gate_up(backend, 2, 2 * kCols, wide);
        Matrix out(backend, 2, kCols);
        backend.silu_mul(gate_up.rows(), out.rows(), {});
        return out.values();
      },
      "silu_mul");
  const auto in_place = [&](Backend& backend, const std::function<void(Rows, Matrix&)>& operation) {
    Matrix x(backend, 2, kCols, some);
    Matrix y(backend, 2, kCols, others);
    operation(x.rows(), y);
    return x.values();
  };
  expect_alike(
      gpu, [&](Backend& b) { return in_place(b, [&](Rows x, Matrix&) { b.gelu_tanh(x, {}); }); }, "gelu_tanh");
  expect_alike(
      gpu, [&](Backend& b) { return in_place(b, [&](Rows x, Matrix& y) { b.add(x, y.rows(), {}); }); }, "add");
  expect_alike(
      gpu, [&](Backend& b) { return in_place(b, [&](Rows x, Matrix& y) { b.add_bias(x, y.data(), {}); }); },
      "add_bias");
}

void expect_rotations_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kDim = 20;
  const std::vector<std::int32_t> position = {5, 0, 7};
  const auto rotate = [&](Backend& backend) {
    Matrix cos(backend, 8, kDim / 2, random_values(8 * kDim / 2, 9));
    Matrix sin(backend, 8, kDim / 2, random_values(8 * kDim / 2, 10));
    Matrix x(backend, 3, kHeads * kDim, random_values(3 * kHeads * kDim, 11));
    backend.rope(x.rows(), kDim, cos.data(), sin.data(), {.position = position}, {});
    return x.values();
  };
  expect_alike(gpu, rotate, "rope");
}

void expect_attention_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kKvHeads = 2;
  const std::vector<std::int32_t> kv_head = {0, 0, 1, 1};
  const std::vector<std::int32_t> chain = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::int32_t> tree = {-1, 0, 0, 2, 1};
  for (const std::int64_t dim : {8, 40, 72}) {
    for (const std::int64_t cached : {0, 5, 62, 130, 319, 510}) {
      for (const auto& parent : {chain, tree}) {
        const auto rows = static_cast<std::int64_t>(parent.size());
        const auto attend = [&](Backend& backend) {
          const auto kv = backend.make_kv({.layers = 2, .kv_heads = kKvHeads, .head_dim = dim, .capacity = 530});
          const auto append = [&](std::int64_t slot, std::int64_t count, unsigned seed) {
            const std::int64_t cols = kKvHeads * dim;
            Matrix keys(backend, count, cols, random_values(count * cols, seed));
            Matrix values(backend, count, cols, random_values(count * cols, seed + 1));
            backend.kv_append(*kv, 1, {.first_slot = slot}, keys.rows(), values.rows(), {});
            backend.synchronize({});
          };
          if (cached > 0) {
            append(0, cached, 12);
          }
          append(cached, rows, 14);
          const std::int64_t cols = std::ssize(kv_head) * dim;
          Matrix q(backend, rows, cols, random_values(rows * cols, 16));
          Matrix out(backend, rows, cols);
          const std::vector<std::int32_t> position(parent.size());
          backend.attention(q.rows(), *kv, 1, {position, parent, cached}, kv_head,
                            1.0F / std::sqrt(static_cast<float>(dim)), out.rows(), {});
          return out.values();
        };
        expect_alike(gpu, attend, "attention over " + std::to_string(cached) + " slots");
      }
    }
  }
}

void expect_moved_slots(Backend& gpu) {
  const auto attend = [](Backend& backend) {
    const auto kv = backend.make_kv({.layers = 2, .kv_heads = 1, .head_dim = 8, .capacity = 80});
    Matrix keys(backend, 70, 8, random_values(70 * 8, 40));
    Matrix values(backend, 70, 8, random_values(70 * 8, 41));
    for (const std::int64_t layer : {0, 1}) {
      backend.kv_append(*kv, layer, {.first_slot = 0}, keys.rows(), values.rows(), {});
    }
    backend.kv_move(*kv, 69, 3, {});
    const std::vector<std::int32_t> position = {0};
    const std::vector<std::int32_t> parent = {-1};
    const std::vector<std::int32_t> kv_head = {0};
    Values both;
    for (const std::int64_t layer : {0, 1}) {
      Matrix q(backend, 1, 8, random_values(8, 42));
      Matrix out(backend, 1, 8);
      backend.attention(q.rows(), *kv, layer, {position, parent, 60}, kv_head, 0.3F, out.rows(), {});
      std::ranges::copy(out.values(), std::back_inserter(both));
    }
    return both;
  };
  expect_alike(gpu, attend, "kv_move");
}

void expect_statistics_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kCols = 700;
  const std::vector<Range> slices = {{0, 1}, {1, 1}, {1, 400}, {400, 700}};
  Values logits = random_values(3 * kCols, 60);
  logits[450] = logits[430] = 9;  // the first of two
  std::fill_n(logits.begin() + kCols + 1, 399, -std::numeric_limits<float>::infinity());
  std::fill_n(logits.begin() + 2 * kCols + 400, 300, std::numeric_limits<float>::quiet_NaN());
  const auto statistics = [&](Backend& backend) {
    Matrix rows(backend, 3, kCols, logits);
    std::vector<SliceMax> max(3 * slices.size());
    std::vector<SliceSum> sum(3 * slices.size());
    backend.slice_max(rows.rows(), slices, max, {});
    backend.slice_sum(rows.rows(), 0.7F, slices, sum, {});
    Values all;
    for (std::size_t i = 0; i < max.size(); ++i) {
      all.insert(all.end(), {max[i].value, static_cast<float>(max[i].index), sum[i].max, sum[i].sum});
    }
    return all;
  };
  expect_alike(gpu, statistics, "slice_max and slice_sum");
}

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
          {48, 64, 20, {{0, 32}, {32, 64}}}};
}

float rounded(float value) { return bf16_to_float(float_to_bf16(value)); }

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

void expect_products(Backend& gpu) {
  for (const Product& p : products()) {
    const Values weights = random_values(p.outputs * p.inputs, 1);
    const Values x = random_values(p.rows * p.inputs, 2);
    const LinearSpec spec = spec_of(weights, p.outputs, p.inputs, {0, p.inputs}, p.slices, DType::kBF16);
    const Values y = multiply(gpu, spec, x, p.rows);
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t n = 0; n < p.outputs; ++n) {
        double exact = 0;
        double magnitude = 0;
        for (std::int64_t k = 0; k < p.inputs; ++k) {
          const double term = double{rounded(weights[n * p.inputs + k])} * double{rounded(x[r * p.inputs + k])};
          exact += term;
          magnitude += std::abs(term);
        }
        // Products of bf16 are exact in fp32; an addition rounds or, in some tensor cores, cuts off.
        const double bound = 2 * static_cast<double>(p.inputs) * 0x1p-23 * magnitude;
        EXPECT_NEAR(y[r * p.outputs + n], exact, bound) << p.inputs << " inputs, row " << r << ", output " << n;
      }
      const Values alone = multiply(gpu, spec, {x.begin() + r * p.inputs, x.end()}, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * p.outputs)) << "row " << r << " alone";
    }
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
