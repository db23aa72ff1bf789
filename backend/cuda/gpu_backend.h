#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
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
#include "backend/row_chain.h"

namespace specdec::cuda {

/// Memory of a device that grows to the largest that was asked for.
template <class Device>
class Scratch {
 public:
  template <typename T>
  T* take(Device& device, std::size_t count) {
    if (memory_ == nullptr || memory_->bytes() < count * sizeof(T)) {
      device.synchronize();  // kernels may still use the old one
      memory_ = device.allocate(count * sizeof(T));
    }
    return reinterpret_cast<T*>(memory_->data());
  }

 private:
  std::unique_ptr<Buffer> memory_;
};

/// A copy on the device of what a call hands to its kernels besides activations: positions, slots, ranges. Made anew when it changes, which for most is once
/// a pass and not once a layer; what was there has been read by then, since a device works in order.
template <class Device, typename T>
class Kept {
 public:
  const T* on(Device& device, std::span<const T> values) {
    T* const copy = memory_.template take<T>(device, values.size());
    if (copy != copy_ || !std::ranges::equal(values, values_)) {
      device.upload(reinterpret_cast<std::byte*>(copy), std::as_bytes(values));
      copy_ = copy;
      values_.assign(values.begin(), values.end());
    }
    return copy;
  }

 private:
  Scratch<Device> memory_;
  const T* copy_ = nullptr;
  std::vector<T> values_;
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
  GpuBackend(Device device, bool cpu_order) : device_(std::move(device)), cpu_order_(cpu_order) {}

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
      return std::make_unique<Linear>(*this, TensorLayout(spec));
    }
    return std::make_unique<Linear>(*this, CpuPackedLinear(spec, Isa::kScalar), spec);
  }

  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream /*stream*/) override {
    check(x.rows == y.rows && x.cols == weight.in_features() && y.cols == weight.out_features(),
          "matmul: the shapes of x, the weight and y agree");
    std::visit([&](const auto& view) { multiply(view, x, y); }, static_cast<const Linear&>(weight).view);
  }

  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream /*stream*/) override {
    device_.template launch<&cuda::rms_norm<Gpu>>({.x = x.rows, .threads = kWarp}, x, weight, eps, y);
  }
  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream /*stream*/) override {
    device_.template launch<&cuda::layer_norm<Gpu>>({.x = x.rows, .threads = kWarp}, x, weight, bias, eps, y);
  }

  void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, std::span<const std::int32_t> position,
            Stream /*stream*/) override {
    device_.template launch<&cuda::rope<Gpu>>(rows_of(x), x, head_dim, cos, sin, positions_.on(device_, position));
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
    device_.template launch<&cuda::attention<Gpu>>(grid, q, view, layer, visible_slots(chain),
                                                   kv_heads_.on(device_, kv_head), scale, out);
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
    auto* const found = found_.template take<SliceMax>(device_, out.size());
    device_.template launch<&cuda::slice_max<Gpu>>(slices_of(logits, slices), logits, slices_.on(device_, slices),
                                                   std::ssize(slices), found);
    bring_back(std::as_writable_bytes(out), found);
  }
  void slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                 Stream /*stream*/) override {
    auto* const found = found_.template take<SliceSum>(device_, out.size());
    device_.template launch<&cuda::slice_sum<Gpu>>(slices_of(logits, slices), logits, temperature,
                                                   slices_.on(device_, slices), std::ssize(slices), found);
    bring_back(std::as_writable_bytes(out), found);
  }

 private:
  using Gpu = typename Device::Gpu;
  static constexpr int kRowThreads = 256;

  /// A matrix on the device, as the CPU packs it or for tensor cores.
  struct Linear final : PackedLinear {
    Linear(GpuBackend& backend, const CpuPackedLinear& packed, const LinearSpec& spec)
        : outputs(packed.out_features()),
          inputs(packed.in_features()),
          weights(backend.on_device(std::span(packed.panels(), packed.bytes()))) {
      std::vector<std::int64_t> bounds;  // first inputs of all slices, then their numbers of inputs
      for (const Range& slice : spec.slices) {
        bounds.push_back(slice.begin);
      }
      for (const Range& slice : spec.slices) {
        bounds.push_back(slice.size());
      }
      tables.push_back(backend.on_device(std::span<const std::int64_t>(bounds)));
      const auto* const begins = table<std::int64_t>(0);
      view = PackedView{.panels = weights->data(),
                        .outputs = outputs,
                        .steps = packed.steps(),
                        .slice_begin = begins,
                        .slice_inputs = begins + spec.slices.size(),
                        .slices = std::ssize(spec.slices),
                        .bf16 = spec.dtype == DType::kBF16};
    }
    Linear(GpuBackend& backend, const TensorLayout& layout)
        : outputs(layout.outputs()), inputs(layout.inputs()), weights(backend.on_device(std::span(layout.weights()))) {
      tables.push_back(backend.on_device(std::span(layout.steps())));
      tables.push_back(backend.on_device(std::span(layout.leaves())));
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
    find_depths(chain, depth_);
    bool in_order = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      in_order = in_order && depth_[r] == r;
    }
    VisibleSlots visible{chain.first_slot, depths_.on(device_, depth_), nullptr, rows};
    if (!in_order) {
      path_.assign(rows * rows, 0);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::int64_t at = r;
        for (std::int64_t d = depth_[r]; d >= 0; --d, at = chain.parent[at]) {
          path_[r * rows + d] = static_cast<std::int32_t>(at);
        }
      }
      visible.path = paths_.on(device_, path_);
    }
    return visible;
  }

  Device device_;
  bool cpu_order_;
  Scratch<Device> rounded_;  // inputs of a product
  Scratch<Device> found_;    // statistics of slices
  Kept<Device, std::int32_t> positions_;
  Kept<Device, std::int32_t> kv_heads_;
  Kept<Device, std::int32_t> depths_;
  Kept<Device, std::int32_t> paths_;
  Kept<Device, Range> slices_;
  std::vector<std::int32_t> depth_;  // host, of the rows of a pass
  std::vector<std::int32_t> path_;
};

}  // namespace specdec::cuda
