#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/kernels/matmul_kernel.h"
#include "backend/cuda/kernels/row_kernels.h"
#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/cuda/random_weights.h"
#include "backend/cuda/tensor_layout.h"
#include "backend/error.h"

namespace specdec::cuda {

/// The linear layers of a GpuBackend: how their weights lie on a `Device` (gpu_backend.h) and which kernels multiply with them.
template <class Device>
class Products {
 public:
  /// `cpu_order`: as in CudaOptions (cuda_backend.h).
  Products(Device& device, bool cpu_order) : device_(device), cpu_order_(cpu_order) {}
  Products(const Products&) = delete;  // it knows where its device lies
  Products& operator=(const Products&) = delete;

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) {
    const bool random = spec.random();
    const Contents contents = random ? Contents::kNone : Contents::kPacked;
    auto linear = spec.dtype == DType::kBF16 && !cpu_order_
                      ? std::make_unique<Linear>(device_, TensorLayout(spec, contents))
                      : std::make_unique<Linear>(device_, CpuPackedLinear(spec, Isa::kScalar, contents), spec);
    if (random) {
      std::visit([&](const auto& view) { make_random(device_, spec, view, linear->weights->data()); }, linear->view);
    }
    return linear;
  }

  void matmul(const PackedLinear& weight, ConstRows x, Rows y) {
    check(x.rows == y.rows && x.cols == weight.in_features() && y.cols == weight.out_features(),
          "matmul: the shapes of x, the weight and y agree");
    std::visit([&](const auto& view) { multiply(view, x, y); }, static_cast<const Linear&>(weight).view);
  }

 private:
  using Gpu = typename Device::Gpu;

  /// A matrix on the device, as the CPU packs it or for tensor cores.
  struct Linear final : PackedLinear {
    Linear(Device& device, const CpuPackedLinear& packed, const LinearSpec& spec)
        : outputs(packed.out_features()),
          inputs(packed.in_features()),
          weights(packed_or_zeros(device, std::span(packed.panels(), packed.bytes()),
                                  static_cast<std::size_t>(packed.panel_count() * packed.panel_bytes()))) {
      std::vector<std::int64_t> bounds;  // first inputs of all slices, then their numbers of inputs
      for (const Range& slice : spec.slices) {
        bounds.push_back(slice.begin);
      }
      for (const Range& slice : spec.slices) {
        bounds.push_back(slice.size());
      }
      tables.push_back(copy_on(device, std::span<const std::int64_t>(bounds)));
      const auto* const begins = table<std::int64_t>(0);
      view = PackedView{.panels = weights->data(),
                        .outputs = outputs,
                        .steps = packed.steps(),
                        .slice_begin = begins,
                        .slice_inputs = begins + spec.slices.size(),
                        .slices = std::ssize(spec.slices),
                        .bf16 = spec.dtype == DType::kBF16};
    }
    Linear(Device& device, const TensorLayout& layout)
        : outputs(layout.outputs()),
          inputs(layout.inputs()),
          weights(packed_or_zeros(device, std::span(layout.weights()), layout.bytes())) {
      tables.push_back(copy_on(device, std::span(layout.steps())));
      tables.push_back(copy_on(device, std::span(layout.leaves())));
      view = TensorView{.weights = reinterpret_cast<const Weights8*>(weights->data()),
                        .step = table<Step>(0),
                        .leaf = table<Leaf>(1),
                        .steps = std::ssize(layout.steps()),
                        .leaves = std::ssize(layout.leaves()),
                        .outputs = outputs};
    }
    std::int64_t out_features() const override { return outputs; }
    std::int64_t in_features() const override { return inputs; }
    std::size_t bytes() const override { return weights->bytes(); }
    template <typename T>
    const T* table(std::size_t i) const {
      return reinterpret_cast<const T*>(tables[i]->data());
    }

    std::int64_t outputs;
    std::int64_t inputs;
    std::unique_ptr<Buffer> weights;
    std::vector<std::unique_ptr<Buffer>> tables;
    std::variant<PackedView, TensorView> view;
  };

  /// What the host has packed, or room for as much.
  template <typename T>
  static std::unique_ptr<Buffer> packed_or_zeros(Device& device, std::span<const T> packed, std::size_t bytes) {
    return packed.empty() ? device.allocate(bytes) : copy_on(device, packed);
  }

  void multiply(const TensorView& weight, ConstRows x, Rows y) {
    const std::int64_t blocks = (x.rows + kTensorRows - 1) / kTensorRows;
    auto* const packed = rounded_.template take<Inputs4>(device_, blocks * weight.steps * kPackThreads);
    device_.template launch<&cuda::pack_inputs<Gpu>>({.x = weight.steps, .y = blocks, .threads = kPackThreads}, weight,
                                                     x, packed);
    const Grid grid{.x = (weight.outputs + kTensorOutputs - 1) / kTensorOutputs,
                    .y = blocks,
                    .threads = kTensorThreads,
                    .shared_bytes = kTensorSharedBytes};
    device_.template launch<&cuda::tensor_matmul<Gpu>>(grid, weight, packed, y);
  }

  void multiply(const PackedView& weight, ConstRows x, Rows y) {
    if (weight.bf16) {
      const Rows taken{rounded_.template take<float>(device_, x.rows * x.cols), x.rows, x.cols, x.cols};
      device_.template launch<&cuda::round_to_bf16<Gpu>>({.x = x.rows, .threads = kRoundThreads}, x, taken);
      x = taken;
    }
    const Grid grid{.x = (weight.outputs + kMatmulThreads - 1) / kMatmulThreads,
                    .y = (x.rows + kMatmulRows - 1) / kMatmulRows,
                    .threads = kMatmulThreads};
    device_.template launch<&cuda::matmul<Gpu>>(grid, weight, x, y);
  }

  static constexpr int kRoundThreads = 256;

  Device& device_;
  bool cpu_order_;
  Scratch<Device> rounded_;  // inputs of a product
};

}  // namespace specdec::cuda
