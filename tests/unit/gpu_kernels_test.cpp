#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cuda/kernels/attention_kernel.h"
#include "backend/cuda/kernels/decision_kernels.h"
#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/cuda/kernels/matmul_kernel.h"
#include "backend/cuda/kernels/row_kernels.h"
#include "parallel/tree.h"
#include "tests/support/emulated_gpu.h"

/// The kernels of backend/cuda on a CPU, bit for bit against the CPU backend.
namespace specdec {
namespace {

/// Contiguous rows that own their memory.
struct Matrix {
  Matrix(std::int64_t rows, std::int64_t cols) : values(rows * cols), shape{nullptr, rows, cols, cols} {}
  Rows rows() { return {values.data(), shape.rows, shape.cols, shape.stride}; }
  std::vector<float> values;
  Rows shape;
};

Matrix random_rows(std::int64_t rows, std::int64_t cols, unsigned seed) {
  Matrix matrix(rows, cols);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::ranges::generate(matrix.values, [&] { return normal(engine); });
  return matrix;
}

testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return a.size() == b.size() ? testing::AssertionSuccess() : testing::AssertionFailure() << "sizes differ";
}

template <typename Kernel>
void run(std::int64_t blocks_x, std::int64_t blocks_y, int threads, std::size_t shared_bytes, const Kernel& kernel) {
  emulate(blocks_x, blocks_y, threads, shared_bytes, [&](EmulatedGpu& gpu) {
    flush_subnormals_to_zero();
    kernel(gpu);
  });
}

class GpuKernels : public testing::Test {
 protected:
  CpuBackend cpu_{detect_isa(), 1};
};

TEST_F(GpuKernels, NormsHaveTheCpusBits) {
  for (const std::int64_t cols : {1, 15, 37, 64, 200}) {
    Matrix x = random_rows(3, cols, 1);
    Matrix weight = random_rows(1, cols, 2);
    Matrix bias = random_rows(1, cols, 3);
    Matrix expected(3, cols);
    Matrix found(3, cols);
    cpu_.rms_norm(x.rows(), weight.values.data(), 1e-5F, expected.rows(), {});
    run(3, 1, cuda::kWarp, 0,
        [&](EmulatedGpu& gpu) { cuda::rms_norm(gpu, x.rows(), weight.values.data(), 1e-5F, found.rows()); });
    EXPECT_TRUE(same_bits(expected.values, found.values)) << "rms_norm, " << cols << " columns";
    cpu_.layer_norm(x.rows(), weight.values.data(), bias.values.data(), 1e-5F, expected.rows(), {});
    run(3, 1, cuda::kWarp, 0, [&](EmulatedGpu& gpu) {
      cuda::layer_norm(gpu, x.rows(), weight.values.data(), bias.values.data(), 1e-5F, found.rows());
    });
    EXPECT_TRUE(same_bits(expected.values, found.values)) << "layer_norm, " << cols << " columns";
  }
}

TEST_F(GpuKernels, ANormMayWriteOverItsInput) {
  Matrix x = random_rows(2, 100, 4);
  Matrix weight = random_rows(1, 100, 5);
  Matrix expected(2, 100);
  cpu_.rms_norm(x.rows(), weight.values.data(), 1e-5F, expected.rows(), {});
  run(2, 1, cuda::kWarp, 0,
      [&](EmulatedGpu& gpu) { cuda::rms_norm(gpu, x.rows(), weight.values.data(), 1e-5F, x.rows()); });
  EXPECT_TRUE(same_bits(expected.values, x.values));
}

TEST_F(GpuKernels, ElementwiseOperationsHaveTheCpusBits) {
  constexpr std::int64_t kCols = 75;
  constexpr int kThreads = 64;
  Matrix gate_up = random_rows(2, 2 * kCols, 6);
  for (float& value : gate_up.values) {
    value *= 30;  // both ends of exp
  }
  Matrix expected(2, kCols);
  Matrix found(2, kCols);
  cpu_.silu_mul(gate_up.rows(), expected.rows(), {});
  run(2, 1, kThreads, 0, [&](EmulatedGpu& gpu) { cuda::silu_mul(gpu, gate_up.rows(), found.rows()); });
  EXPECT_TRUE(same_bits(expected.values, found.values)) << "silu_mul";

  expected = random_rows(2, kCols, 7);
  found = expected;
  cpu_.gelu_tanh(expected.rows(), {});
  run(2, 1, kThreads, 0, [&](EmulatedGpu& gpu) { cuda::gelu_tanh(gpu, found.rows()); });
  EXPECT_TRUE(same_bits(expected.values, found.values)) << "gelu_tanh";

  Matrix y = random_rows(2, kCols, 8);
  cpu_.add(expected.rows(), y.rows(), {});
  run(2, 1, kThreads, 0, [&](EmulatedGpu& gpu) { cuda::add(gpu, found.rows(), y.rows()); });
  EXPECT_TRUE(same_bits(expected.values, found.values)) << "add";

  cpu_.add_bias(expected.rows(), y.values.data(), {});
  const ConstRows bias{y.values.data(), 2, kCols, 0};
  run(2, 1, kThreads, 0, [&](EmulatedGpu& gpu) { cuda::add(gpu, found.rows(), bias); });
  EXPECT_TRUE(same_bits(expected.values, found.values)) << "add_bias";
}

TEST_F(GpuKernels, RotationsHaveTheCpusBits) {
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kDim = 20;
  const std::vector<std::int32_t> position = {5, 0, 7};
  Matrix cos = random_rows(8, kDim / 2, 9);
  Matrix sin = random_rows(8, kDim / 2, 10);
  Matrix expected = random_rows(3, kHeads * kDim, 11);
  Matrix found = expected;
  cpu_.rope(expected.rows(), kDim, cos.values.data(), sin.values.data(), position, {});
  run(3, 1, 64, 0, [&](EmulatedGpu& gpu) {
    cuda::rope(gpu, found.rows(), kDim, cos.values.data(), sin.values.data(), position.data());
  });
  EXPECT_TRUE(same_bits(expected.values, found.values));
}

/// A cache of either kind, and passes over both.
class Caches {
 public:
  Caches(CpuBackend& cpu, const KvShape& shape) : cpu_(cpu), cpu_kv_(cpu.make_kv(shape)) {
    view_.shape = shape;
    keys_.resize(view_.floats());
    values_.resize(view_.floats());
    view_.keys = keys_.data();
    view_.values = values_.data();
  }

  void append(std::int64_t layer, std::int64_t first_slot, Matrix keys, Matrix values) {
    cpu_.kv_append(*cpu_kv_, layer, first_slot, keys.rows(), values.rows(), {});
    run(keys.shape.rows, 1, 64, 0,
        [&](EmulatedGpu& gpu) { cuda::kv_append(gpu, view_, layer, first_slot, keys.rows(), values.rows()); });
  }

  void move(std::int64_t from, std::int64_t to) {
    cpu_.kv_move(*cpu_kv_, from, to, {});
    run(view_.shape.layers, 1, 64, 0, [&](EmulatedGpu& gpu) { cuda::kv_move(gpu, view_, from, to); });
  }

  testing::AssertionResult attend_alike(std::int64_t layer, std::int64_t first_slot,
                                        const std::vector<std::int32_t>& parent,
                                        const std::vector<std::int32_t>& kv_head, unsigned seed) {
    const auto rows = static_cast<std::int64_t>(parent.size());
    const auto heads = static_cast<std::int64_t>(kv_head.size());
    const std::int64_t cols = heads * view_.shape.head_dim;
    Matrix q = random_rows(rows, cols, seed);
    Matrix expected(rows, cols);
    Matrix found(rows, cols);
    const float scale = 1.0F / std::sqrt(static_cast<float>(view_.shape.head_dim));
    const std::vector<std::int32_t> position(parent.size());
    cpu_.attention(q.rows(), *cpu_kv_, layer, {position, parent, first_slot}, kv_head, scale, expected.rows(), {});

    std::vector<std::int32_t> depth(parent.size());
    std::vector<std::int32_t> path(rows * rows);
    bool chain = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      depth[r] = parent[r] < 0 ? 0 : depth[parent[r]] + 1;
      std::int64_t at = r;
      for (std::int64_t d = depth[r]; d >= 0; --d, at = parent[at]) {
        path[r * rows + d] = static_cast<std::int32_t>(at);
      }
      chain = chain && depth[r] == r;
    }
    const cuda::VisibleSlots visible{first_slot, depth.data(), chain ? nullptr : path.data(), rows};
    run(rows, heads, cuda::kAttentionThreads, cuda::attention_shared_bytes(view_.shape.head_dim),
        [&](EmulatedGpu& gpu) {
          cuda::attention(gpu, q.rows(), view_, layer, visible, kv_head.data(), scale, found.rows());
        });
    return same_bits(expected.values, found.values);
  }

 private:
  CpuBackend& cpu_;
  std::unique_ptr<KvStore> cpu_kv_;
  std::vector<float> keys_;
  std::vector<float> values_;
  cuda::KvView view_;
};

TEST_F(GpuKernels, AttentionHasTheCpusBits) {
  constexpr std::int64_t kKvHeads = 2;
  const std::vector<std::int32_t> chain = {-1, 0, 1};
  const std::vector<std::int32_t> tree = {-1, 0, 0, 2, 1};
  for (const std::int64_t dim : {8, 40}) {
    Caches caches(cpu_, {.layers = 2, .kv_heads = kKvHeads, .head_dim = dim, .capacity = 150});
    unsigned seed = 12;
    const auto random = [&](std::int64_t rows) { return random_rows(rows, kKvHeads * dim, ++seed); };
    for (const std::int64_t cached : {0, 5, 62, 130}) {
      for (const auto& parent : {chain, tree}) {
        for (std::int64_t slot = cached == 0 ? 0 : cached - 5; slot < cached; ++slot) {
          caches.append(1, slot, random(1), random(1));
        }
        const auto rows = static_cast<std::int64_t>(parent.size());
        caches.append(1, cached, random(rows), random(rows));
        EXPECT_TRUE(caches.attend_alike(1, cached, parent, {0, 0, 1, 1}, ++seed))
            << cached << " slots, " << rows << " rows, " << dim << " components";
      }
    }
  }
}

TEST_F(GpuKernels, AMovedSlotIsMovedInAllLayers) {
  Caches caches(cpu_, {.layers = 2, .kv_heads = 1, .head_dim = 8, .capacity = 80});
  for (const std::int64_t layer : {0, 1}) {
    caches.append(layer, 0, random_rows(70, 8, 40), random_rows(70, 8, 41));
  }
  caches.move(69, 3);
  for (const std::int64_t layer : {0, 1}) {
    EXPECT_TRUE(caches.attend_alike(layer, 60, {-1}, {0}, 42)) << layer;
  }
}

struct Product {
  std::vector<float> weights;  // [outputs, inputs]
  LinearSpec spec;
};

Product random_product(std::int64_t outputs, std::int64_t inputs, std::vector<Range> slices, DType dtype) {
  Product product{.weights = random_rows(outputs, inputs, 50).values, .spec = {}};
  product.spec = {.stacked = {{reinterpret_cast<const std::byte*>(product.weights.data()), DType::kF32, outputs, inputs,
                               inputs, 1}},
                  .slices = std::move(slices),
                  .dtype = dtype};
  return product;
}

float rounded(float value, DType dtype) { return dtype == DType::kBF16 ? bf16_to_float(float_to_bf16(value)) : value; }

/// One output, by the words of Backend::matmul: slices in order from zero, two bf16 inputs the second first, and the tree.
float expected_output(const Product& product, const float* x, std::int64_t output) {
  const std::int64_t inputs = product.spec.stacked.front().cols;
  const DType dtype = product.spec.dtype;
  const auto term = [&](std::int64_t k, float sum) {
    return std::fma(rounded(product.weights[output * inputs + k], dtype), rounded(x[k], dtype), sum);
  };
  std::vector<float> sums;
  for (const Range& slice : product.spec.slices) {
    float sum = slice.empty() ? -0.0F : 0.0F;
    for (std::int64_t k = slice.begin; k < slice.end; k += dtype == DType::kBF16 ? 2 : 1) {
      if (dtype == DType::kBF16 && k + 1 < slice.end) {
        sum = term(k + 1, sum);
      }
      sum = term(k, sum);
    }
    sums.push_back(sum);
  }
  std::vector<std::span<const float>> leaves;
  for (const float& sum : sums) {
    leaves.emplace_back(&sum, 1);
  }
  float total = 0;
  tree_sum(std::span<const std::span<const float>>(leaves), std::span(&total, 1));
  return total;
}

TEST_F(GpuKernels, ProductsHaveTheOrderThatIsStatedAndTheCpusBits) {
  constexpr std::int64_t kOutputs = 150;
  const std::vector<std::vector<Range>> cuts = {
      {{0, 33}}, {{0, 3}, {3, 3}, {3, 20}, {20, 33}}, {{0, 8}, {8, 9}, {9, 9}, {9, 30}, {30, 33}}};
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const std::vector<Range>& slices : cuts) {
      const Product product = random_product(kOutputs, 33, slices, dtype);
      const CpuPackedLinear packed(product.spec, detect_isa());
      std::vector<std::int64_t> begin;
      std::vector<std::int64_t> inputs;
      for (const Range& slice : slices) {
        begin.push_back(slice.begin);
        inputs.push_back(slice.size());
      }
      const cuda::PackedView view{packed.panels(), kOutputs,           packed.steps(),       begin.data(),
                                  inputs.data(),   std::ssize(slices), dtype == DType::kBF16};
      Matrix x = random_rows(6, 33, 51);
      Matrix taken = x;
      if (view.bf16) {
        run(6, 1, 64, 0, [&](EmulatedGpu& gpu) { cuda::round_to_bf16(gpu, x.rows(), taken.rows()); });
      }
      Matrix found(6, kOutputs);
      run((kOutputs + cuda::kMatmulThreads - 1) / cuda::kMatmulThreads, 2, cuda::kMatmulThreads, 0,
          [&](EmulatedGpu& gpu) { cuda::matmul(gpu, view, taken.rows(), found.rows()); });
      Matrix stated(6, kOutputs);
      for (std::int64_t r = 0; r < 6; ++r) {
        for (std::int64_t n = 0; n < kOutputs; ++n) {
          stated.rows().row(r)[n] = expected_output(product, x.rows().row(r), n);
        }
      }
      EXPECT_TRUE(same_bits(stated.values, found.values)) << slices.size() << " slices, " << name_of(dtype);
      if (detect_isa() != Isa::kScalar) {  // which does not fuse
        Matrix cpus(6, kOutputs);
        const auto weight = cpu_.pack(product.spec);
        cpu_.matmul(*weight, x.rows(), cpus.rows(), {});
        EXPECT_TRUE(same_bits(cpus.values, found.values)) << slices.size() << " slices, " << name_of(dtype);
      }
    }
  }
}

TEST_F(GpuKernels, StatisticsOfSlicesHaveTheCpusBits) {
  constexpr std::int64_t kCols = 700;
  const std::vector<Range> slices = {{0, 1}, {1, 1}, {1, 400}, {400, 700}};
  Matrix logits = random_rows(3, kCols, 60);
  logits.rows().row(0)[450] = logits.rows().row(0)[430] = 9;  // the first of two
  std::fill_n(logits.rows().row(1) + 1, 399, -std::numeric_limits<float>::infinity());
  std::fill_n(logits.rows().row(2) + 400, 300, std::numeric_limits<float>::quiet_NaN());
  const std::size_t count = 3 * slices.size();
  std::vector<SliceMax> expected_max(count);
  std::vector<SliceMax> found_max(count);
  cpu_.slice_max(logits.rows(), slices, expected_max, {});
  run(std::ssize(slices), 3, cuda::kDecisionThreads, cuda::kDecisionSharedBytes, [&](EmulatedGpu& gpu) {
    cuda::slice_max(gpu, logits.rows(), slices.data(), std::ssize(slices), found_max.data());
  });
  std::vector<SliceSum> expected_sum(count);
  std::vector<SliceSum> found_sum(count);
  cpu_.slice_sum(logits.rows(), 0.7F, slices, expected_sum, {});
  run(std::ssize(slices), 3, cuda::kDecisionThreads, cuda::kDecisionSharedBytes, [&](EmulatedGpu& gpu) {
    cuda::slice_sum(gpu, logits.rows(), 0.7F, slices.data(), std::ssize(slices), found_sum.data());
  });
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(expected_max[i].value, found_max[i].value) << i;
    EXPECT_EQ(expected_max[i].index, found_max[i].index) << i;
    EXPECT_TRUE(same_bits({expected_sum[i].max, expected_sum[i].sum}, {found_sum[i].max, found_sum[i].sum})) << i;
  }
}

}  // namespace
}  // namespace specdec
