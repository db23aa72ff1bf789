#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cuda/random_weights.h"
#include "backend/cuda/tensor_layout.h"
#include "tests/support/emulated_device.h"
#include "tests/unit/random_layers.h"

/// Weights that are made on a device, byte for byte those that the host packs.
namespace specdec::cuda {
namespace {

using ::specdec::testing::random_layers;
using ::specdec::testing::RandomLayer;
using ::specdec::testing::ReadLayer;
using ::specdec::testing::same_bytes;

TEST(GpuRandomWeights, TilesAreThoseOfTheHost) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const RandomLayer& layer : random_layers(dtype)) {
      EmulatedDevice device;
      const ReadLayer read(layer.spec());
      const TensorLayout packed(read.spec());
      const TensorLayout layout(layer.spec(), Contents::kNone);
      ASSERT_TRUE(layout.weights().empty());
      ASSERT_EQ(layout.bytes(), packed.weights().size() * sizeof(std::uint16_t)) << layer.name;
      const auto steps = copy_on(device, std::span(layout.order().steps()));
      const auto weights = device.allocate(layout.bytes());
      const TensorView view{.weights = reinterpret_cast<const Weights8*>(weights->data()),
                            .step = reinterpret_cast<const Step*>(steps->data()),
                            .steps = std::ssize(layout.order().steps()),
                            .outputs = layout.outputs()};
      make_random(device, layer.spec(), view, weights->data());
      EXPECT_TRUE(same_bytes(weights->data(), packed.weights().data(), layout.bytes())) << layer.name;
    }
  }
}

TEST(GpuRandomWeights, PanelsAreThoseOfTheHost) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const RandomLayer& layer : random_layers(dtype)) {
      EmulatedDevice device;
      const ReadLayer read(layer.spec());
      const CpuPackedLinear packed(read.spec(), Isa::kScalar);
      std::vector<std::int64_t> bounds;
      for (const Range& slice : layer.slices) {
        bounds.push_back(slice.begin);
      }
      for (const Range& slice : layer.slices) {
        bounds.push_back(slice.size());
      }
      const auto weights = device.allocate(packed.bytes());
      const PackedView view{.panels = weights->data(),
                            .outputs = packed.out_features(),
                            .steps = packed.steps(),
                            .slice_begin = bounds.data(),
                            .slice_inputs = bounds.data() + layer.slices.size(),
                            .slices = std::ssize(layer.slices),
                            .bf16 = dtype == DType::kBF16};
      make_random(device, layer.spec(), view, weights->data());
      EXPECT_TRUE(same_bytes(weights->data(), packed.panels(), packed.bytes())) << layer.name;
    }
  }
}

TEST(GpuRandomWeights, ABackendMultipliesWithThem) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const CudaProducts products : {CudaProducts::kTensor, CudaProducts::kCpuOrder}) {
      for (const RandomLayer& layer : random_layers(dtype)) {
        EmulatedBackend backend(EmulatedDevice(), {.products = products});
        const ReadLayer read(layer.spec());
        const auto made = backend.pack(layer.spec());
        const auto copied = backend.pack(read.spec());
        ASSERT_EQ(made->bytes(), copied->bytes()) << layer.name;
        std::vector<float> x(static_cast<std::size_t>(3 * made->in_features()));
        std::iota(x.begin(), x.end(), -20.0F);
        const auto product = [&](const PackedLinear& weight) {
          std::vector<float> y(static_cast<std::size_t>(3 * weight.out_features()));
          backend.matmul(weight, {x.data(), 3, weight.in_features(), weight.in_features()},
                         {y.data(), 3, weight.out_features(), weight.out_features()}, {});
          return y;
        };
        EXPECT_EQ(product(*made), product(*copied)) << layer.name;
      }
    }
  }
}

TEST(GpuRandomWeights, TablesHaveTheRowsOfTheHost) {
  const WeightView whole = ::specdec::testing::random_view(8, 0, 30, 70, 70, 1);
  const WeightView transposed = ::specdec::testing::random_view(8, 13, 20, 33, 1, 40);
  for (const WeightView& weight : {whole, transposed}) {
    EmulatedBackend gpu(EmulatedDevice(), {});
    CpuBackend cpu(Isa::kScalar, 1);
    const std::vector<std::int32_t> index = {3, 0, static_cast<std::int32_t>(weight.rows - 1)};
    const auto rows = [&](Backend& backend) {
      const auto table = backend.make_table(weight);
      std::vector<float> x(index.size() * static_cast<std::size_t>(weight.cols));
      backend.embed(*table, index.data(), {x.data(), std::ssize(index), weight.cols, weight.cols}, {});
      return x;
    };
    EXPECT_EQ(rows(gpu), rows(cpu));
  }
}

}  // namespace
}  // namespace specdec::cuda
