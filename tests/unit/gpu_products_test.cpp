#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/cuda/tensor_choice.h"
#include "backend/cuda/tensor_layout.h"
#include "tests/support/bad_input.h"
#include "tests/support/emulated_device.h"
#include "tests/support/gpu_matrix.h"
#include "tests/support/product_battery.h"

/// Products on an emulated GPU: every bit but those of tensor cores' own order of addition, which are tests/gpu's.
namespace specdec {
namespace {

using battery::random_values;
using battery::Values;
using cuda::TensorShape;

class GpuProductsTest : public testing::Test {
 protected:
  EmulatedBackend gpu_{EmulatedDevice(), {}};
};

TEST_F(GpuProductsTest, OfBf16) { battery::expect_products(gpu_, DType::kBF16); }
TEST_F(GpuProductsTest, OfFp16) { battery::expect_products(gpu_, DType::kF16); }
TEST_F(GpuProductsTest, OfInt8AreRefused) {
  for (const CudaProducts products :
       {CudaProducts::kTensor, CudaProducts::kCublas, CudaProducts::kVector, CudaProducts::kCpuOrder}) {
    EmulatedBackend gpu(EmulatedDevice(), {.products = products});
    const std::vector<float> ones(16, 1);
    const WeightView view = {reinterpret_cast<const std::byte*>(ones.data()), DType::kF32, 4, 4, 4, 1};
    EXPECT_EQ(tests::bad_input([&] {
                gpu.pack({{view}, {{0, 4}}, DType::kInt8});
              }),
              "dtype: found \"int8\" with the backend \"cuda\", expected \"bf16\", \"f16\" or \"f32\"");
  }
}
TEST_F(GpuProductsTest, OfGates) {
  battery::expect_gated_products(gpu_, DType::kBF16, true);
  battery::expect_gated_products(gpu_, DType::kF16, true);
}
TEST_F(GpuProductsTest, OfGatesThatAreNotFused) {
  battery::expect_gated_products(gpu_, DType::kF32, false);
  EmulatedBackend apart(EmulatedDevice(), {.fuse = false});
  battery::expect_gated_products(apart, DType::kBF16, false);
  for (const CudaProducts products : {CudaProducts::kCublas, CudaProducts::kVector, CudaProducts::kCpuOrder}) {
    EmulatedBackend gpu(EmulatedDevice(), {.products = products});
    battery::expect_gated_products(gpu, DType::kBF16, false);
  }
}
TEST_F(GpuProductsTest, RanksAddUpToTheSameBits) { battery::expect_ranks_add_up(gpu_); }

TEST_F(GpuProductsTest, InTheCpusOrderHaveItsBits) {
  if (detect_isa() == Isa::kScalar) {
    GTEST_SKIP() << "this CPU does not fuse multiply-adds";
  }
  EmulatedBackend in_order(EmulatedDevice(), {.products = CudaProducts::kCpuOrder});
  battery::expect_products_of_the_cpu(in_order, DType::kBF16);
  battery::expect_products_of_the_cpu(gpu_, DType::kF32);
  battery::expect_products(in_order, DType::kBF16);
  battery::expect_ranks_add_up(in_order);
}

TEST_F(GpuProductsTest, OfALibraryAndOfVectorUnitsAreNear) {
  for (const CudaProducts products : {CudaProducts::kCublas, CudaProducts::kVector}) {
    EmulatedBackend gpu(EmulatedDevice(), {.products = products});
    battery::expect_near_products(gpu, DType::kBF16);
    battery::expect_near_products(gpu, DType::kF16);
    EXPECT_NE(gpu.description().find("bits depend on the number of rows"), std::string::npos) << gpu.description();
  }
  EXPECT_EQ(gpu_.description(), "emulated");
}

/// What a product of `rows` rows asks for before one with `next`, in bytes: its weights from their beginning, neither twice nor with a gap.
std::size_t bytes_asked(const LinearSpec& spec, const LinearSpec& next, std::int64_t rows, const CudaOptions& options) {
  EmulatedDevice device;
  const auto asked = device.asked();
  EmulatedBackend gpu(EmulatedDevice(device), options);
  const auto weight = gpu.pack(spec);
  const auto weight_after = gpu.pack(next);
  battery::Matrix x(gpu, rows, weight->in_features(), random_values(rows * weight->in_features(), 4));
  battery::Matrix alone(gpu, rows, weight->out_features());
  battery::Matrix before(gpu, rows, weight->out_features());
  gpu.matmul(*weight, x.rows(), alone.rows(), {});
  EXPECT_TRUE(asked->empty());
  gpu.matmul_before(*weight, x.rows(), before.rows(), *weight_after, {});
  EXPECT_TRUE(battery::same_bits(alone.values(), before.values()));
  std::vector<EmulatedGpu::Asked> in_order = *asked;
  std::ranges::sort(in_order, {}, &EmulatedGpu::Asked::data);
  const std::vector<std::uint16_t> packed = cuda::TensorLayout(next).weights();
  const auto expected = std::as_bytes(std::span(packed));
  std::size_t at = 0;
  for (const EmulatedGpu::Asked& some : in_order) {
    EXPECT_EQ(some.data(), in_order.front().data() + at);
    EXPECT_TRUE(some.size() % 16 == 0 && at + some.size() <= expected.size() &&
                std::ranges::equal(some, expected.subspan(at, some.size())))
        << some.size() << " bytes from " << at;
    at += some.size();
  }
  return at;
}

TEST_F(GpuProductsTest, AskForTheWeightsThatComeNext) {
  const Values weights = random_values(200 * 320, 1);
  const auto spec_of = [&](std::int64_t outputs, std::int64_t inputs) {
    return LinearSpec{
        .stacked = {{reinterpret_cast<const std::byte*>(weights.data()), DType::kF32, outputs, inputs, inputs, 1}},
        .slices = {{0, inputs}},
        .dtype = DType::kBF16};
  };
  const LinearSpec spec = spec_of(40, 64);
  const LinearSpec large = spec_of(200, 320);
  const std::size_t all = cuda::TensorLayout(large).bytes();
  // Inputs as they are and packed, one block of rows and several, which ask once.
  for (const std::int64_t rows : {1, 11, 20, 70}) {
    EXPECT_EQ(bytes_asked(spec, large, rows, {}), all) << rows;
    EXPECT_EQ(bytes_asked(spec, large, rows, {.prefetch_bytes = 50'000}), 50'000U) << rows;
    EXPECT_EQ(bytes_asked(spec, large, rows, {.prefetch_bytes = 41}), 32U) << rows;
    EXPECT_EQ(bytes_asked(spec, spec_of(3, 16), rows, {}), 512U) << rows;
    EXPECT_EQ(bytes_asked(spec, large, rows, {.prefetch_bytes = 0}), 0U) << rows;
  }
  EXPECT_EQ(bytes_asked(spec, large, 1, {.products = CudaProducts::kVector}), all);
  EXPECT_EQ(bytes_asked(spec, large, 1, {.products = CudaProducts::kCublas}), 0U);
  EXPECT_EQ(bytes_asked(spec, large, 1, {.products = CudaProducts::kCpuOrder}), 0U);
}

TEST_F(GpuProductsTest, HalvesInTheCpusOrderAreRefused) {
  EmulatedBackend in_order(EmulatedDevice(), {.products = CudaProducts::kCpuOrder});
  CpuBackend cpu(Isa::kScalar, 1);
  const std::vector<float> weight(1);
  const LinearSpec spec{.stacked = {{reinterpret_cast<const std::byte*>(weight.data()), DType::kF32, 1, 1, 1, 1}},
                        .slices = {{0, 1}},
                        .dtype = DType::kF16};
  for (Backend* const backend : {static_cast<Backend*>(&in_order), static_cast<Backend*>(&cpu)}) {
    tests::bad_input([&] { backend->pack(spec); });
  }
}

struct Product {
  std::int64_t outputs;
  std::int64_t rows;
  std::vector<Range> slices;
  std::int64_t inputs() const { return slices.back().end; }
};

struct Matrices {
  /// `gated`: the first half of the outputs are gates.
  explicit Matrices(const Product& p, DType dtype, bool gated = false)
      : weights(random_values(p.outputs * p.inputs(), 1)),
        x(random_values(p.rows * p.inputs(), 2)),
        bias(random_values(p.outputs, 3)),
        layout({.stacked = {half(p, 0), half(p, 1)}, .slices = p.slices, .dtype = dtype, .gated = gated}) {}
  WeightView half(const Product& p, std::int64_t i) const {
    return {reinterpret_cast<const std::byte*>(weights.data() + i * (p.outputs / 2) * p.inputs()),
            DType::kF32,
            i == 0 ? p.outputs / 2 : p.outputs - p.outputs / 2,
            p.inputs(),
            p.inputs(),
            1};
  }
  Values weights;
  Values x;
  Values bias;
  cuda::TensorLayout layout;
};

/// With `activated` the bias is added, and gates act.
template <TensorShape kShape>
Values run(const Product& p, Matrices& m, bool activated = false) {
  EmulatedDevice device;
  const cuda::TensorTables<EmulatedDevice> tables(device, m.layout.order(), kShape.warps);
  const cuda::TensorView view =
      tables.view(reinterpret_cast<const std::byte*>(m.layout.weights().data()), m.layout.outputs());
  const ConstRows x{m.x.data(), p.rows, p.inputs(), p.inputs()};
  const std::int64_t cols = activated ? p.outputs / 2 : p.outputs;
  Values y(static_cast<std::size_t>(p.rows * cols));
  const std::int64_t blocks = (p.rows + kShape.rows() - 1) / kShape.rows();
  std::vector<cuda::Inputs4> packed(static_cast<std::size_t>(blocks * kShape.columns * view.steps * cuda::kWarp));
  device.launch<&cuda::pack_inputs<EmulatedGpu, kShape.type>>(
      {.x = view.steps, .y = blocks * kShape.columns, .threads = cuda::kWarp}, view, x, std::int32_t{kShape.columns},
      packed.data());
  device.launch<&cuda::tensor_matmul<EmulatedGpu, kShape>>(
      {.x = blocks,
       .y = (view.outputs.tiles() + kShape.tiles - 1) / kShape.tiles,
       .threads = kShape.threads(),
       .shared_bytes = kShape.shared_bytes(view.stack)},
      view, cuda::TensorInputs{x, packed.data()},
      cuda::TensorOutputs{
          .rows = {y.data(), p.rows, cols, cols}, .activated = activated, .bias = activated ? m.bias.data() : nullptr});
  return y;
}

/// A slice of one leaf, an empty one, one of two leaves of unequal length.
const Product kProduct{.outputs = 40, .rows = 11, .slices = {{0, 64}, {64, 64}, {64, 336}, {336, 352}}};

/// The order that docs/gpu.md writes down, once more and in plain words; the emulated tensor cores add in the order of their own k.
float in_order(const float* w, const float* x, const std::vector<Range>& slices) {
  const auto half = [](float value) { return bf16_to_float(float_to_bf16(value)); };
  const auto meet = [](Values level) {
    while (level.size() > 1) {
      Values above;
      for (std::size_t i = 0; i < level.size(); i += 2) {
        above.push_back(i + 1 < level.size() ? level[i] + level[i + 1] : level[i]);
      }
      level = above;
    }
    return level.front();
  };
  Values sums;
  for (const Range& slice : slices) {
    const std::int64_t steps = (slice.size() + 15) / 16;
    std::int64_t leaves = 1;
    while (leaves < 32 && steps > 16 * leaves) {
      leaves *= 2;
    }
    Values of_slice;
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
      float sum = slice.empty() ? -0.0F : 0.0F;
      for (std::int64_t step = steps * leaf / leaves; step < steps * (leaf + 1) / leaves; ++step) {
        for (const int input : {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}) {
          const std::int64_t k = slice.begin + step * 16 + input;
          sum += k < slice.end ? half(w[k]) * half(x[k]) : 0.0F;
        }
      }
      of_slice.push_back(sum);
    }
    sums.push_back(meet(of_slice));
  }
  return meet(sums);
}

TEST(TensorMatmul, AddsInTheOrderThatIsWrittenDown) {
  std::vector<Range> many;  // more leaves than warps, so that sums wait in turn
  for (std::int64_t i = 0; i < 11; ++i) {
    many.push_back({i * 272, (i + 1) * 272});
  }
  for (const Product& p : {kProduct, Product{16, 2, many}, Product{17, 3, {{0, 5}, {5, 5}, {5, 600}}}}) {
    Matrices m(p, DType::kBF16);
    Values expected;
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t n = 0; n < p.outputs; ++n) {
        expected.push_back(in_order(m.weights.data() + n * p.inputs(), m.x.data() + r * p.inputs(), p.slices));
      }
    }
    EXPECT_TRUE(battery::same_bits(expected, run<TensorShape{.warps = 4, .packed = true}>(p, m))) << p.inputs();
  }
}

TEST(TensorMatmul, EveryShapeHasTheSameBits) {
  Matrices m(kProduct, DType::kBF16);
  const Values expected = run<TensorShape{.warps = 1, .packed = true}>(kProduct, m);
  const auto expect_same = [&]<TensorShape kShape>(std::integral_constant<TensorShape, kShape>) {
    EXPECT_TRUE(battery::same_bits(expected, run<kShape>(kProduct, m)))
        << kShape.warps << " warps, " << kShape.tiles << " tiles, " << kShape.columns << " columns, " << kShape.depth
        << " steps ahead, shared " << kShape.shared << ", packed " << kShape.packed;
  };
  expect_same(std::integral_constant<TensorShape, TensorShape{}>());
  expect_same(std::integral_constant<TensorShape, TensorShape{.warps = 16, .depth = 3}>());
  expect_same(std::integral_constant<TensorShape, TensorShape{.warps = 5, .tiles = 2, .depth = 1}>());
  expect_same(std::integral_constant<TensorShape, TensorShape{.tiles = 4, .columns = 2, .depth = 4}>());
  expect_same(std::integral_constant<TensorShape, TensorShape{.warps = 2, .columns = 8, .depth = 2, .packed = true}>());
  expect_same(std::integral_constant<TensorShape, TensorShape{.columns = 2, .shared = false}>());
  expect_same(
      std::integral_constant<TensorShape, TensorShape{.tiles = 2, .depth = 5, .shared = false, .packed = true}>());
}

TEST(TensorMatmul, GatesActInEveryShape) {
  // 21 pairs in three tiles.
  const Product p{.outputs = 42, .rows = 11, .slices = {{0, 64}, {64, 64}, {64, 336}, {336, 352}}};
  Matrices apart(p, DType::kBF16);
  Matrices gated(p, DType::kBF16, true);
  const Values product = run<TensorShape{.warps = 1, .packed = true}>(p, apart);
  Values expected;
  for (std::int64_t i = 0; i < p.rows * p.outputs; ++i) {
    const std::int64_t output = i % p.outputs;
    if (output < p.outputs / 2) {
      const std::int64_t other = p.outputs / 2;
      expected.push_back(elementary::silu(apart.bias[output] + product[i]) *
                         (apart.bias[output + other] + product[i + other]));
    }
  }
  const auto expect_same = [&]<TensorShape kShape>(std::integral_constant<TensorShape, kShape>) {
    EXPECT_TRUE(battery::same_bits(expected, run<kShape>(p, gated, true)))
        << kShape.warps << " warps, " << kShape.tiles << " tiles, " << kShape.columns << " columns, packed "
        << kShape.packed;
    EXPECT_TRUE(battery::same_bits(product, run<kShape>(p, gated)));
  };
  expect_same(std::integral_constant<TensorShape, cuda::decode_shape<DType::kBF16, true>()>());
  expect_same(std::integral_constant<TensorShape, cuda::wide_shape<DType::kBF16>()>());
  expect_same(std::integral_constant<TensorShape, cuda::prefill_shape<DType::kBF16, true>()>());
  expect_same(std::integral_constant<TensorShape, TensorShape{.warps = 5, .tiles = 4, .columns = 2, .depth = 3}>());
}

TEST(TensorMatmul, HalvesRoundAsDocumented) {
  // 65519 rounds to the largest half, 65520 to infinity; 2^-25 to zero, and a little more to the smallest half.
  const Product p{.outputs = 16, .rows = 4, .slices = {{0, 16}}};
  Matrices m(p, DType::kF16);
  Values weights(16 * 16, 0.0F);
  weights[0] = 1;
  m.layout =
      cuda::TensorLayout({.stacked = {{reinterpret_cast<const std::byte*>(weights.data()), DType::kF32, 16, 16, 16, 1}},
                          .slices = p.slices,
                          .dtype = DType::kF16});
  m.x.assign(4 * 16, 0.0F);
  m.x[0] = 65519;
  m.x[16] = -65520;
  m.x[32] = 0x1p-25F;
  m.x[48] = 0x1.002p-25F;
  const Values y = run<TensorShape{.type = DType::kF16}>(p, m);
  EXPECT_EQ(y[0], 65504);
  EXPECT_EQ(y[16], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(y[32], 0);
  EXPECT_EQ(y[48], 0x1p-24F);
}

}  // namespace
}  // namespace specdec
