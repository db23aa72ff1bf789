#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "backend/cuda/random_weights.h"
#include "backend/cuda/tensor_layout.h"
#include "tests/support/emulated_device.h"
#include "tests/support/gpu_battery.h"
#include "tests/support/random_layers.h"

/// Weights that are made on a device, byte for byte those that the host packs.
namespace specdec::cuda {
namespace {

using ::specdec::tests::random_layers;
using ::specdec::tests::RandomLayer;
using ::specdec::tests::ReadLayer;
using ::specdec::tests::same_bytes;

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

TEST(GpuRandomWeights, ABackendHasWhatItWouldHaveRead) {
  EmulatedBackend tensor(EmulatedDevice(), {});
  EmulatedBackend cpu_order(EmulatedDevice(), {.products = CudaProducts::kCpuOrder});
  battery::expect_random_weights(tensor, DType::kBF16);
  battery::expect_random_weights(tensor, DType::kF16);
  battery::expect_random_weights(tensor, DType::kF32);
  battery::expect_random_weights(cpu_order, DType::kBF16);
}

}  // namespace
}  // namespace specdec::cuda
