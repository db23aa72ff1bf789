#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/kernels/half_kernels.h"
#include "backend/cuda/kernels/matmul_kernel.h"
#include "backend/cuda/kernels/row_kernels.h"
#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/cuda/random_weights.h"
#include "backend/cuda/tensor_choice.h"
#include "backend/cuda/tensor_layout.h"
#include "backend/cuda/tensor_tables.h"
#include "backend/error.h"

namespace specdec::cuda {

/// The linear layers of a GpuBackend: how their weights lie on a `Device` (gpu_backend.h) and which kernels multiply with them.
template <class Device>
class Products {
 public:
  Products(Device& device, const CudaOptions& options)
      : device_(device),
        kind_(options.products),
        fuses_(options.fuse && kind_ == CudaProducts::kTensor),
        most_ahead_(options.prefetch_bytes) {}
  Products(const Products&) = delete;  // it knows where its device lies
  Products& operator=(const Products&) = delete;

  std::unique_ptr<PackedLinear> pack(LinearSpec spec) {
    spec.gated = spec.gated && fuses_;
    if (spec.dtype == DType::kInt8) {
      throw_bad_input("dtype: found \"int8\" with the backend \"cuda\", expected \"bf16\", \"f16\" or \"f32\"");
    }
    if (spec.dtype == DType::kF16 && kind_ == CudaProducts::kCpuOrder) {
      throw_bad_input("dtype: found \"f16\" with cuda.matmul: cpu_order, expected \"bf16\" or \"f32\"");
    }
    if (spec.dtype != DType::kF32 && kind_ == CudaProducts::kCublas && spec.slices.back().end > 0) {
      return std::make_unique<Linear>(device_, spec);
    }
    const bool random = spec.random();
    const Contents contents = random ? Contents::kNone : Contents::kPacked;
    auto linear = spec.dtype != DType::kF32 && kind_ != CudaProducts::kCpuOrder
                      ? std::make_unique<Linear>(device_, TensorLayout(spec, contents), spec.dtype)
                      : std::make_unique<Linear>(device_, CpuPackedLinear(spec, Isa::kScalar, contents), spec);
    if (random) {
      if (const auto* const tensor = std::get_if<Tensor>(&linear->view)) {
        make_random(device_, spec, tensor->view, linear->weights->data());
      } else {
        make_random(device_, spec, std::get<PackedView>(linear->view), linear->weights->data());
      }
    }
    return linear;
  }

  void matmul(const PackedLinear& weight, ConstRows x, Rows y) {
    check_shapes(weight, x, y);
    std::visit([&](const auto& view) { multiply(view, x, y); }, static_cast<const Linear&>(weight).view);
  }

  /// As a Backend's, on tensor cores; else `next` is not asked for.
  void matmul_before(const PackedLinear& weight, ConstRows x, Rows y, const PackedLinear& next) {
    const auto* const tensor = std::get_if<Tensor>(&static_cast<const Linear&>(weight).view);
    if (tensor == nullptr) {
      matmul(weight, x, y);
      return;
    }
    check_shapes(weight, x, y);
    Buffer& weights = *static_cast<const Linear&>(next).weights;
    const std::int64_t bytes = std::min(static_cast<std::int64_t>(weights.bytes()), most_ahead_) / 16 * 16;
    multiply(*tensor, x, TensorOutputs{.rows = y, .ahead = {.from = weights.data(), .bytes = bytes}});
  }

  /// As a Backend's, where the weights lie for it; else false, and nothing has been done.
  bool matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows out) {
    const auto* const tensor = std::get_if<Tensor>(&static_cast<const Linear&>(weight).view);
    if (tensor == nullptr || !tensor->view.outputs.gated) {
      return false;
    }
    check(x.rows == out.rows && x.cols == weight.in_features() && 2 * out.cols == weight.out_features(),
          "matmul_silu_mul: the shapes of x, the weight and out agree");
    multiply(*tensor, x, TensorOutputs{.rows = out, .activated = true, .bias = bias});
    return true;
  }

  /// For reports: what is not the default, and what it means.
  std::string_view remark() const {
    switch (kind_) {
      case CudaProducts::kTensor:
        break;
      case CudaProducts::kCublas:
        return ", products by cuBLAS: bits depend on the number of rows and of ranks";
      case CudaProducts::kVector:
        return ", products of 1 to 3 rows by vector units: bits depend on the number of rows";
      case CudaProducts::kCpuOrder:
        return ", products in the CPU's order";
    }
    return "";
  }

 private:
  using Gpu = typename Device::Gpu;

  /// Row-major, for a library.
  struct Plain {
    const std::byte* weights;
    DType dtype;
    std::int64_t inputs;
  };
  struct Tensor {
    TensorView view;
    TensorView many;  ///< the same, cut for kManyWarps
    DType dtype;
    bool even;  ///< TensorOrder::even()
  };

  /// A matrix on the device, as the CPU packs it or for tensor cores.
  struct Linear final : PackedLinear {
    Linear(Device& device, const CpuPackedLinear& packed, const LinearSpec& spec)
        : outputs(packed.out_features()),
          inputs(packed.in_features()),
          weights(packed_or_zeros(device, std::span(packed.panels(), packed.bytes()),
                                  static_cast<std::size_t>(packed.panel_count() * packed.panel_bytes()))) {
      std::vector<std::int64_t> bounds(2 *
                                       spec.slices.size());  // first inputs of all slices, then their numbers of inputs
      const auto sizes = std::ranges::transform(spec.slices, bounds.begin(), &Range::begin).out;
      std::ranges::transform(spec.slices, sizes, &Range::size);
      slices = copy_on(device, std::span<const std::int64_t>(bounds));
      const auto* const begins = reinterpret_cast<const std::int64_t*>(slices->data());
      view = PackedView{.panels = weights->data(),
                        .outputs = outputs,
                        .steps = packed.steps(),
                        .slice_begin = begins,
                        .slice_inputs = begins + spec.slices.size(),
                        .slices = std::ssize(spec.slices),
                        .bf16 = spec.dtype == DType::kBF16};
    }
    Linear(Device& device, const TensorLayout& layout, DType dtype)
        : outputs(layout.outputs().count),
          inputs(layout.order().inputs()),
          weights(packed_or_zeros(device, std::span(layout.weights()), layout.bytes())),
          tables(std::in_place, device, layout.order(), kTensorWarps),
          many(std::in_place, device, layout.order(), kManyWarps) {
      view = Tensor{tables->view(weights->data(), layout.outputs()), many->view(weights->data(), layout.outputs()),
                    dtype, layout.order().even()};
    }
    /// For a library: rows as they are, rounded.
    Linear(Device& device, const LinearSpec& spec) : outputs(0), inputs(spec.slices.back().end) {
      for (const WeightView& stacked : spec.stacked) {
        outputs += stacked.rows;
      }
      std::vector<std::uint16_t> halves(static_cast<std::size_t>(outputs * inputs));
      std::vector<float> row(static_cast<std::size_t>(inputs));
      auto to = halves.begin();
      for (const WeightView& stacked : spec.stacked) {
        for (std::int64_t r = 0; r < stacked.rows; ++r) {
          read_row(stacked, r, row);
          to = std::ranges::transform(row, to, spec.dtype == DType::kF16 ? float_to_f16 : float_to_bf16).out;
        }
      }
      weights = copy_on(device, std::span<const std::uint16_t>(halves));
      view = Plain{weights->data(), spec.dtype, inputs};
    }
    std::int64_t out_features() const override { return outputs; }
    std::int64_t in_features() const override { return inputs; }
    std::size_t bytes() const override { return weights->bytes(); }

    std::int64_t outputs;
    std::int64_t inputs;
    std::unique_ptr<Buffer> weights;
    std::unique_ptr<Buffer> slices;              // of a PackedView
    std::optional<TensorTables<Device>> tables;  // of a Tensor
    std::optional<TensorTables<Device>> many;
    std::variant<PackedView, Tensor, Plain> view;
  };

  static void check_shapes(const PackedLinear& weight, ConstRows x, Rows y) {
    check(x.rows == y.rows && x.cols == weight.in_features() && y.cols == weight.out_features(),
          "matmul: the shapes of x, the weight and y agree");
  }

  /// What the host has packed, or room for as much.
  template <typename T>
  static std::unique_ptr<Buffer> packed_or_zeros(Device& device, std::span<const T> packed, std::size_t bytes) {
    return packed.empty() ? device.allocate(bytes) : copy_on(device, packed);
  }

  void multiply(const Tensor& weight, ConstRows x, Rows y) { multiply(weight, x, TensorOutputs{.rows = y}); }
  void multiply(const Tensor& weight, ConstRows x, const TensorOutputs& out) {
    if (weight.dtype == DType::kF16) {
      multiply<DType::kF16>(weight, x, out);
    } else {
      multiply<DType::kBF16>(weight, x, out);
    }
  }

  void multiply(const Plain& weight, ConstRows x, Rows y) {
    auto* const halves = rounded_.template take<std::uint16_t>(device_, x.rows * x.cols);
    const Grid grid{.x = x.rows, .threads = kRoundThreads};
    if (weight.dtype == DType::kF16) {
      device_.template launch<&cuda::round_to_halves<Gpu, DType::kF16>>(grid, x, halves);
    } else {
      device_.template launch<&cuda::round_to_halves<Gpu, DType::kBF16>>(grid, x, halves);
    }
    device_.multiply_by_library(weight.dtype, weight.weights, reinterpret_cast<const std::byte*>(halves), weight.inputs,
                                y);
  }

  template <DType kType>
  void multiply(const Tensor& weight, ConstRows x, const TensorOutputs& out) {
    const std::int64_t outputs = weight.view.outputs.count;
    const bool as_they_are = weight.even && x.stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
    if (x.rows > packed_shape<kType>().rows()) {
      const auto fits = [&](const TensorShape& shape) {
        return shape.shared_bytes(weight.view.stack) <= kPrefillMemory;
      };
      if (fits(prefill_shape<kType, true>())) {
        run<prefill_shape<kType, true>()>(weight.view, x, out);
      } else if (fits(prefill_shape<kType, false>())) {
        run<prefill_shape<kType, false>()>(weight.view, x, out);
      } else {
        run<packed_shape<kType>()>(weight.view, x, out);
      }
    } else if (!as_they_are) {
      run<packed_shape<kType>()>(weight.view, x, out);
    } else if (kind_ == CudaProducts::kVector && x.rows <= kVectorRows) {
      if (x.rows == 1) {
        run<vector_shape<kType, 1>()>(weight.view, x, out);
      } else {
        run<vector_shape<kType, kVectorRows>()>(weight.view, x, out);
      }
    } else if (outputs < kFewOutputs) {
      x.rows <= 8 ? run<few_outputs_shape<kType, 1>()>(weight.many, x, out)
                  : run<few_outputs_shape<kType, 2>()>(weight.many, x, out);
    } else if (x.rows <= 8) {
      outputs >= kManyOutputs ? run<decode_shape<kType, true>()>(weight.view, x, out)
                              : run<decode_shape<kType, false>()>(weight.view, x, out);
    } else if (outputs >= kPackedOutputs) {
      run<packed_shape<kType>()>(weight.view, x, out);
    } else {
      run<wide_shape<kType>()>(weight.view, x, out);
    }
  }

  template <TensorShape kShape>
  void run(const TensorView& weight, ConstRows x, TensorOutputs out) {
    const std::int64_t row_blocks = (x.rows + kShape.rows() - 1) / kShape.rows();
    const std::int64_t columns = row_blocks * kShape.columns;
    TensorInputs in{.rows = x};
    if constexpr (kShape.packed) {
      auto* const packed = rounded_.template take<Inputs4>(device_, columns * weight.steps * kWarp);
      device_.template launch<&cuda::pack_inputs<Gpu, kShape.type>>({.x = weight.steps, .y = columns, .threads = kWarp},
                                                                    weight, x, std::int32_t{kShape.columns}, packed);
      in.packed = packed;
    }
    const Grid grid{.x = row_blocks,
                    .y = (weight.outputs.tiles() + kShape.tiles - 1) / kShape.tiles,
                    .threads = kShape.threads(),
                    .shared_bytes = kShape.shared_bytes(weight.stack)};
    const std::int64_t at_once = WeightsAhead::kAtOnce * grid.y;
    out.ahead.share = (out.ahead.bytes + at_once - 1) / at_once * WeightsAhead::kAtOnce;
    device_.template launch<&cuda::tensor_matmul<Gpu, kShape>>(grid, weight, in, out);
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
  CudaProducts kind_;
  bool fuses_;
  std::int64_t most_ahead_;
  Scratch<Device> rounded_;  // inputs of a product
};

}  // namespace specdec::cuda
