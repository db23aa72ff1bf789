#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/kernels/attention_kernel.h"
#include "backend/cuda/kernels/decision_kernels.h"
#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/cuda/kernels/matmul_kernel.h"
#include "backend/cuda/kernels/row_kernels.h"
#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/cuda/tensor_layout.h"
#include "backend/error.h"

namespace specdec::cuda {

/// Memory for what a call hands to its kernels besides activations (positions, slots, ranges) and for small results: one buffer, used in turn.
/// A device works in order, so what is overwritten has been read.
template <class Device>
class CallMemory {
 public:
  explicit CallMemory(Device& device) : device_(device), memory_(device.allocate(kBytes)) {}

  /// A copy of `values` on the device, good for the kernels of the same call.
  template <typename T>
  const T* keep(std::span<const T> values) {
    T* const to = take<T>(values.size());
    device_.upload(reinterpret_cast<std::byte*>(to), std::as_bytes(values));
    return to;
  }
  template <typename T>
  T* take(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > memory_->bytes()) {
      device_.synchronize();  // kernels may still read the old one
      memory_ = device_.allocate(2 * bytes);
      used_ = 0;
    }
    if (used_ + bytes > memory_->bytes()) {
      used_ = 0;
    }
    return reinterpret_cast<T*>(memory_->data() + std::exchange(used_, used_ + bytes));
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kBytes = std::size_t{4} << 20;

  Device& device_;
  std::unique_ptr<Buffer> memory_;
  std::size_t used_ = 0;
};

/// The operations of a Backend as launches of kernels, on a `Device` that runs everything in the order of the calls:
///
///     using Gpu = ...;                                      what its kernels get (kernels/device.h)
///     std::unique_ptr<Buffer> allocate(std::size_t bytes);  zero-filled
///     void upload(std::byte* to, std::span<const std::byte> from);      `from` has been read on return
///     void download(std::span<std::byte> to, const std::byte* from);    `to` is complete after synchronize()
///     void synchronize();
///     void launch<&kernel>(const Grid& grid, arguments...);
///     std::string description() const;
///
/// A GPU is one (cuda_backend.cu); the unit tests have another, which emulates it (tests/support/emulated_device.h).
template <class Device>
class GpuBackend final : public Backend {
 public:
  /// `cpu_order`: as in CudaOptions (cuda_backend.h).
  GpuBackend(Device device, bool cpu_order) : device_(std::move(device)), memory_(device_), cpu_order_(cpu_order) {}

  std::string description() const override { return device_.description(); }

  bool on_host() const override { return false; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void upload(std::byte* to, std::span<const std::byte> host, Stream /*stream*/) override { device_.upload(to, host); }
  void download(std::span<std::byte> host, const std::byte* from, Stream /*stream*/) override {
    device_.download(host, from);
  }
  void synchronize(Stream /*stream*/) override { device_.synchronize(); }

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override {
    if (spec.dtype == DType::kBF16 && !cpu_order_) {
      return std::make_unique<TensorLinear>(*this, TensorLayout(spec));
    }
    return std::make_unique<ChainLinear>(*this, CpuPackedLinear(spec, Isa::kScalar), spec);
  }

  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream /*stream*/) override {
    check(x.rows == y.rows && x.cols == weight.in_features() && y.cols == weight.out_features(),
          "matmul: the shapes of x, the weight and y agree");
    if (const auto* tensor = dynamic_cast<const TensorLinear*>(&weight)) {
      multiply(tensor->view, x, y);
    } else {
      multiply(static_cast<const ChainLinear&>(weight).view, x, y);
    }
  }

  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream /*stream*/) override {
    device_.template launch<&cuda::rms_norm<Gpu>>({.x = x.rows, .threads = kWarp}, x, weight, eps, y);
  }
  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream /*stream*/) override {
    device_.template launch<&cuda::layer_norm<Gpu>>({.x = x.rows, .threads = kWarp}, x, weight, bias, eps, y);
  }

  void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, std::span<const std::int32_t> position,
            Stream /*stream*/) override {
    device_.template launch<&cuda::rope<Gpu>>(rows_of(x), x, head_dim, cos, sin, memory_.keep(position));
  }
  std::unique_ptr<KvStore> make_kv(const KvShape& shape) override { return std::make_unique<Kv>(*this, shape); }
  void kv_append(KvStore& kv, std::int64_t layer, std::int64_t first_slot, ConstRows keys, ConstRows values,
                 Stream /*stream*/) override {
    const KvView& view = static_cast<Kv&>(kv).view;
    check(first_slot >= 0 && first_slot + keys.rows <= view.shape.capacity, "appended rows do not fit the KV store");
    device_.template launch<&cuda::kv_append<Gpu>>(rows_of(keys), view, layer, first_slot, keys, values);
  }
  void kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream /*stream*/) override {
    const KvView& view = static_cast<Kv&>(kv).view;
    const auto has = [&](std::int64_t slot) { return 0 <= slot && slot < view.shape.capacity; };
    check(has(from) && has(to), "moved slot outside the KV store");
    device_.template launch<&cuda::kv_move<Gpu>>({.x = view.shape.layers, .threads = kRowThreads}, view, from, to);
  }
  void attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream /*stream*/) override {
    const KvView& view = static_cast<const Kv&>(kv).view;
    const Grid grid{.x = chain.rows(),
                    .y = static_cast<std::int64_t>(kv_head.size()),
                    .threads = kAttentionThreads,
                    .shared_bytes = attention_shared_bytes(view.shape.head_dim)};
    device_.template launch<&cuda::attention<Gpu>>(grid, q, view, layer, visible_slots(chain), memory_.keep(kv_head),
                                                   scale, out);
  }

  void silu_mul(ConstRows gate_up, Rows out, Stream /*stream*/) override {
    device_.template launch<&cuda::silu_mul<Gpu>>(rows_of(out), gate_up, out);
  }
  void gelu_tanh(Rows x, Stream /*stream*/) override { device_.template launch<&cuda::gelu_tanh<Gpu>>(rows_of(x), x); }
  void add_bias(Rows y, const float* bias, Stream /*stream*/) override {
    device_.template launch<&cuda::add<Gpu>>(rows_of(y), y, ConstRows{bias, y.rows, y.cols, 0});
  }
  void add(Rows x, ConstRows y, Stream /*stream*/) override {
    device_.template launch<&cuda::add<Gpu>>(rows_of(x), x, y);
  }

  void slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream /*stream*/) override {
    auto* const found = memory_.template take<SliceMax>(out.size());
    device_.template launch<&cuda::slice_max<Gpu>>(slices_of(logits, slices), logits, memory_.keep(slices),
                                                   std::ssize(slices), found);
    bring_back(std::as_writable_bytes(out), found);
  }
  void slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                 Stream /*stream*/) override {
    auto* const found = memory_.template take<SliceSum>(out.size());
    device_.template launch<&cuda::slice_sum<Gpu>>(slices_of(logits, slices), logits, temperature, memory_.keep(slices),
                                                   std::ssize(slices), found);
    bring_back(std::as_writable_bytes(out), found);
  }

 private:
  using Gpu = typename Device::Gpu;
  static constexpr int kRowThreads = 256;

  /// A matrix as the CPU packs it.
  struct ChainLinear final : PackedLinear {
    ChainLinear(GpuBackend& backend, const CpuPackedLinear& packed, const LinearSpec& spec)
        : inputs(packed.in_features()) {
      std::vector<std::int64_t> bounds;  // first inputs of all slices, then their numbers of inputs
      for (const Range& slice : spec.slices) {
        bounds.push_back(slice.begin);
      }
      for (const Range& slice : spec.slices) {
        bounds.push_back(slice.size());
      }
      panels = backend.on_device(std::span(packed.panels(), packed.bytes()));
      slices = backend.on_device(std::span<const std::int64_t>(bounds));
      const auto* const begins = reinterpret_cast<const std::int64_t*>(slices->data());
      view = {.panels = panels->data(),
              .outputs = packed.out_features(),
              .steps = packed.steps(),
              .slice_begin = begins,
              .slice_inputs = begins + spec.slices.size(),
              .slices = std::ssize(spec.slices),
              .bf16 = spec.dtype == DType::kBF16};
    }
    std::int64_t out_features() const override { return view.outputs; }
    std::int64_t in_features() const override { return inputs; }
    std::size_t bytes() const override { return panels->bytes(); }

    std::int64_t inputs;
    std::unique_ptr<Buffer> panels;
    std::unique_ptr<Buffer> slices;
    PackedView view;
  };

  /// A bf16 matrix for tensor cores.
  struct TensorLinear final : PackedLinear {
    TensorLinear(GpuBackend& backend, const TensorLayout& layout)
        : inputs(layout.inputs()),
          weights(backend.on_device(std::span(layout.weights()))),
          steps(backend.on_device(std::span(layout.steps()))),
          leaves(backend.on_device(std::span(layout.leaves()))),
          view{.weights = reinterpret_cast<const Weights8*>(weights->data()),
               .step = reinterpret_cast<const Step*>(steps->data()),
               .leaf = reinterpret_cast<const Leaf*>(leaves->data()),
               .steps = std::ssize(layout.steps()),
               .leaves = std::ssize(layout.leaves()),
               .outputs = layout.outputs()} {}
    std::int64_t out_features() const override { return view.outputs; }
    std::int64_t in_features() const override { return inputs; }
    std::size_t bytes() const override { return weights->bytes(); }

    std::int64_t inputs;
    std::unique_ptr<Buffer> weights;
    std::unique_ptr<Buffer> steps;
    std::unique_ptr<Buffer> leaves;
    TensorView view;
  };

  struct Kv final : KvStore {
    Kv(GpuBackend& backend, const KvShape& shape) : view{.shape = shape} {
      const auto bytes = static_cast<std::size_t>(view.floats()) * sizeof(float);
      keys = backend.device_.allocate(bytes);
      values = backend.device_.allocate(bytes);
      view.keys = keys->floats();
      view.values = values->floats();
    }
    const KvShape& shape() const override { return view.shape; }

    KvView view;
    std::unique_ptr<Buffer> keys;
    std::unique_ptr<Buffer> values;
  };

  template <typename T>
  std::unique_ptr<Buffer> on_device(std::span<const T> values) {
    auto buffer = device_.allocate(values.size_bytes());
    device_.upload(buffer->data(), std::as_bytes(values));
    return buffer;
  }

  template <typename T>
  T* rounded(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (rounded_ == nullptr || rounded_->bytes() < bytes) {
      device_.synchronize();  // kernels may still read the old one
      rounded_ = device_.allocate(bytes);
    }
    return reinterpret_cast<T*>(rounded_->data());
  }

  void multiply(const TensorView& weight, ConstRows x, Rows y) {
    const std::int64_t blocks = (x.rows + kTensorRows - 1) / kTensorRows;
    auto* const packed = rounded<Inputs4>(blocks * weight.steps * kPackThreads);
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
      const Rows taken{rounded<float>(x.rows * x.cols), x.rows, x.cols, x.cols};
      device_.template launch<&cuda::round_to_bf16<Gpu>>(rows_of(x), x, taken);
      x = taken;
    }
    const Grid grid{.x = (weight.outputs + kMatmulThreads - 1) / kMatmulThreads,
                    .y = (x.rows + kMatmulRows - 1) / kMatmulRows,
                    .threads = kMatmulThreads};
    device_.template launch<&cuda::matmul<Gpu>>(grid, weight, x, y);
  }

  static Grid rows_of(ConstRows x) { return {.x = x.rows, .threads = kRowThreads}; }
  static Grid slices_of(ConstRows logits, std::span<const Range> slices) {
    return {
        .x = std::ssize(slices), .y = logits.rows, .threads = kDecisionThreads, .shared_bytes = kDecisionSharedBytes};
  }

  void bring_back(std::span<std::byte> host, const void* from) {
    device_.download(host, static_cast<const std::byte*>(from));
    device_.synchronize();
  }

  VisibleSlots visible_slots(const RowChain& chain) {
    const std::int64_t rows = chain.rows();
    depth_.resize(rows);
    bool in_order = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t parent = chain.parent[r];
      check(parent >= -1 && parent < r, "a row's parent must come before it");
      depth_[r] = parent < 0 ? 0 : depth_[parent] + 1;
      in_order = in_order && depth_[r] == r;
    }
    VisibleSlots visible{chain.first_slot, memory_.keep(std::span<const std::int32_t>(depth_)), nullptr, rows};
    if (!in_order) {
      path_.assign(rows * rows, 0);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::int64_t at = r;
        for (std::int64_t d = depth_[r]; d >= 0; --d, at = chain.parent[at]) {
          path_[r * rows + d] = static_cast<std::int32_t>(at);
        }
      }
      visible.path = memory_.keep(std::span<const std::int32_t>(path_));
    }
    return visible;
  }

  Device device_;
  CallMemory<Device> memory_;
  bool cpu_order_;
  std::unique_ptr<Buffer> rounded_;  // inputs of a product; grows to the largest
  std::vector<std::int32_t> depth_;  // host, of the rows of a pass
  std::vector<std::int32_t> path_;
};

}  // namespace specdec::cuda
