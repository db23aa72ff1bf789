#include <sched.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_gpu.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/kernels/attention_kernel.h"
#include "backend/cuda/kernels/decision_kernels.h"
#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/cuda/kernels/matmul_kernel.h"
#include "backend/cuda/kernels/row_kernels.h"
#include "backend/cuda/kernels/tensor_matmul_kernel.h"
#include "backend/cuda/tensor_layout.h"
#include "backend/error.h"

namespace specdec {
namespace {

using cuda::CudaGpu;
using cuda::DeviceBuffer;
using cuda::Grid;
using cuda::Launch;
using cuda::TensorLayout;

constexpr int kRowThreads = 256;

std::unique_ptr<DeviceBuffer> on_device(std::span<const std::byte> bytes) {
  auto buffer = std::make_unique<DeviceBuffer>(bytes.size());
  cuda_check(cudaMemcpy(buffer->data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  return buffer;
}

template <typename T>
std::unique_ptr<DeviceBuffer> on_device(const std::vector<T>& values) {
  return on_device(std::as_bytes(std::span(values)));
}

/// A matrix as the CPU packs it: for fp32, and for bf16 in the CPU's order.
class ChainLinear final : public PackedLinear {
 public:
  ChainLinear(const CpuPackedLinear& packed, const LinearSpec& spec)
      : inputs_(packed.in_features()),
        panels_(on_device(std::span(packed.panels(), packed.bytes()))),
        slices_(on_device(bounds_of(spec))) {
    const auto* const bounds = reinterpret_cast<const std::int64_t*>(slices_->data());
    const auto count = static_cast<std::int64_t>(spec.slices.size());
    view_ = {.panels = panels_->data(),
             .outputs = packed.out_features(),
             .steps = packed.steps(),
             .slice_begin = bounds,
             .slice_inputs = bounds + count,
             .slices = count,
             .bf16 = spec.dtype == DType::kBF16};
  }

  std::int64_t out_features() const override { return view_.outputs; }
  std::int64_t in_features() const override { return inputs_; }
  std::size_t bytes() const override { return panels_->bytes(); }
  const cuda::PackedView& view() const { return view_; }

 private:
  /// First inputs of all slices, then their numbers of inputs.
  static std::vector<std::int64_t> bounds_of(const LinearSpec& spec) {
    std::vector<std::int64_t> bounds;
    for (const Range& slice : spec.slices) {
      bounds.push_back(slice.begin);
    }
    for (const Range& slice : spec.slices) {
      bounds.push_back(slice.size());
    }
    return bounds;
  }

  std::int64_t inputs_;
  std::unique_ptr<DeviceBuffer> panels_;
  std::unique_ptr<DeviceBuffer> slices_;
  cuda::PackedView view_;
};

/// A bf16 matrix for tensor cores.
class TensorLinear final : public PackedLinear {
 public:
  explicit TensorLinear(const TensorLayout& layout)
      : inputs_(layout.inputs()),
        weights_(on_device(layout.weights())),
        steps_(on_device(layout.steps())),
        leaves_(on_device(layout.leaves())),
        view_{.weights = reinterpret_cast<const cuda::Weights8*>(weights_->data()),
              .step = reinterpret_cast<const cuda::Step*>(steps_->data()),
              .leaf = reinterpret_cast<const cuda::Leaf*>(leaves_->data()),
              .steps = static_cast<std::int64_t>(layout.steps().size()),
              .leaves = static_cast<std::int64_t>(layout.leaves().size()),
              .outputs = layout.outputs()} {}

  std::int64_t out_features() const override { return view_.outputs; }
  std::int64_t in_features() const override { return inputs_; }
  std::size_t bytes() const override { return weights_->bytes(); }
  const cuda::TensorView& view() const { return view_; }

 private:
  std::int64_t inputs_;
  std::unique_ptr<DeviceBuffer> weights_;
  std::unique_ptr<DeviceBuffer> steps_;
  std::unique_ptr<DeviceBuffer> leaves_;
  cuda::TensorView view_;
};

class CudaKv final : public KvStore {
 public:
  explicit CudaKv(const KvShape& shape) : view_{.shape = shape} {
    const auto bytes = static_cast<std::size_t>(view_.floats()) * sizeof(float);
    keys_ = std::make_unique<DeviceBuffer>(bytes);
    values_ = std::make_unique<DeviceBuffer>(bytes);
    view_.keys = keys_->floats();
    view_.values = values_->floats();
  }
  const KvShape& shape() const override { return view_.shape; }
  const cuda::KvView& view() const { return view_; }

 private:
  cuda::KvView view_;
  std::unique_ptr<DeviceBuffer> keys_;
  std::unique_ptr<DeviceBuffer> values_;
};

/// A stream of its own on the current device.
class OwnedStream {
 public:
  OwnedStream() { cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~OwnedStream() { cudaStreamDestroy(stream_); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Every operation in one stream of the backend's, whatever stream a caller names.
class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) : options_(options), device_(options), parameters_(stream_.get()) {}

  std::string description() const override { return "cuda (" + device_.description() + ")"; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return std::make_unique<DeviceBuffer>(bytes); }

  void upload(std::byte* device, std::span<const std::byte> host, Stream /*stream*/) override {
    cuda_check(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync");
  }

  void download(std::span<std::byte> host, const std::byte* device, Stream /*stream*/) override {
    cuda_check(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpyAsync");
  }

  void synchronize(Stream /*stream*/) override {
    // Polled: a rank that is blocked in the driver could not be told that the job ends.
    cudaError_t status = cudaStreamQuery(stream_.get());
    for (; status == cudaErrorNotReady; status = cudaStreamQuery(stream_.get())) {
      sched_yield();
    }
    cuda_check(status, "cudaStreamQuery");
  }

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override {
    if (spec.dtype == DType::kBF16 && !options_.cpu_order) {
      return std::make_unique<TensorLinear>(TensorLayout(spec));
    }
    return std::make_unique<ChainLinear>(CpuPackedLinear(spec, Isa::kScalar), spec);
  }

  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream /*stream*/) override {
    check(x.rows == y.rows && x.cols == weight.in_features() && y.cols == weight.out_features(),
          "matmul: the shapes of x, the weight and y agree");
    if (const auto* tensor = dynamic_cast<const TensorLinear*>(&weight)) {
      tensor_matmul(tensor->view(), x, y);
    } else {
      chain_matmul(static_cast<const ChainLinear&>(weight).view(), x, y);
    }
  }

  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream /*stream*/) override {
    launch<&cuda::rms_norm<CudaGpu>>({.x = x.rows, .threads = cuda::kWarp}, x, weight, eps, y);
  }

  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream /*stream*/) override {
    launch<&cuda::layer_norm<CudaGpu>>({.x = x.rows, .threads = cuda::kWarp}, x, weight, bias, eps, y);
  }

  void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, std::span<const std::int32_t> position,
            Stream /*stream*/) override {
    launch<&cuda::rope<CudaGpu>>({.x = x.rows, .threads = kRowThreads}, x, head_dim, cos, sin,
                                 parameters_.keep(position));
  }

  std::unique_ptr<KvStore> make_kv(const KvShape& shape) override { return std::make_unique<CudaKv>(shape); }

  void kv_append(KvStore& kv, std::int64_t layer, std::int64_t first_slot, ConstRows keys, ConstRows values,
                 Stream /*stream*/) override {
    const cuda::KvView& view = static_cast<CudaKv&>(kv).view();
    check(first_slot >= 0 && first_slot + keys.rows <= view.shape.capacity, "appended rows do not fit the KV store");
    launch<&cuda::kv_append<CudaGpu>>({.x = keys.rows, .threads = kRowThreads}, view, layer, first_slot, keys, values);
  }

  void kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream /*stream*/) override {
    const cuda::KvView& view = static_cast<CudaKv&>(kv).view();
    check(0 <= from && from < view.shape.capacity && 0 <= to && to < view.shape.capacity,
          "moved slot outside the KV store");
    launch<&cuda::kv_move<CudaGpu>>({.x = view.shape.layers, .threads = kRowThreads}, view, from, to);
  }

  void attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream /*stream*/) override {
    const cuda::KvView& view = static_cast<const CudaKv&>(kv).view();
    const Grid grid{.x = chain.rows(),
                    .y = static_cast<std::int64_t>(kv_head.size()),
                    .threads = cuda::kAttentionThreads,
                    .shared_bytes = cuda::attention_shared_bytes(view.shape.head_dim)};
    launch<&cuda::attention<CudaGpu>>(grid, q, view, layer, visible_slots(chain), parameters_.keep(kv_head), scale,
                                      out);
  }

  void silu_mul(ConstRows gate_up, Rows out, Stream /*stream*/) override {
    launch<&cuda::silu_mul<CudaGpu>>({.x = out.rows, .threads = kRowThreads}, gate_up, out);
  }

  void gelu_tanh(Rows x, Stream /*stream*/) override {
    launch<&cuda::gelu_tanh<CudaGpu>>({.x = x.rows, .threads = kRowThreads}, x);
  }

  void add_bias(Rows y, const float* bias, Stream /*stream*/) override {
    launch<&cuda::add<CudaGpu>>({.x = y.rows, .threads = kRowThreads}, y, ConstRows{bias, y.rows, y.cols, 0});
  }

  void add(Rows x, ConstRows y, Stream /*stream*/) override {
    launch<&cuda::add<CudaGpu>>({.x = x.rows, .threads = kRowThreads}, x, y);
  }

  void slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream stream) override {
    auto* const found = parameters_.take<SliceMax>(out.size());
    launch<&cuda::slice_max<CudaGpu>>(decision_grid(logits, slices), logits, parameters_.keep(slices),
                                      static_cast<std::int64_t>(slices.size()), found);
    bring_back(std::as_writable_bytes(out), found, stream);
  }

  void slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                 Stream stream) override {
    auto* const found = parameters_.take<SliceSum>(out.size());
    launch<&cuda::slice_sum<CudaGpu>>(decision_grid(logits, slices), logits, temperature, parameters_.keep(slices),
                                      static_cast<std::int64_t>(slices.size()), found);
    bring_back(std::as_writable_bytes(out), found, stream);
  }

 private:
  /// Inputs of a product, rounded; grows to the largest.
  class Scratch {
   public:
    template <typename T>
    T* take(std::int64_t count) {
      const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
      if (memory_ == nullptr || memory_->bytes() < bytes) {
        memory_ = std::make_unique<DeviceBuffer>(bytes);  // freeing the old one waits for its kernels
      }
      return reinterpret_cast<T*>(memory_->data());
    }

   private:
    std::unique_ptr<DeviceBuffer> memory_;
  };

  void tensor_matmul(const cuda::TensorView& weight, ConstRows x, Rows y) {
    const std::int64_t blocks = (x.rows + cuda::kTensorRows - 1) / cuda::kTensorRows;
    auto* const packed = rounded_.take<cuda::Inputs4>(blocks * weight.steps * cuda::kPackThreads);
    launch<&cuda::pack_inputs<CudaGpu>>({.x = weight.steps, .y = blocks, .threads = cuda::kPackThreads}, weight, x,
                                        packed);
    launch<&cuda::tensor_matmul<CudaGpu>>({.x = (weight.outputs + cuda::kTensorOutputs - 1) / cuda::kTensorOutputs,
                                           .y = blocks,
                                           .threads = cuda::kTensorThreads,
                                           .shared_bytes = cuda::kTensorSharedBytes},
                                          weight, packed, y);
  }

  void chain_matmul(const cuda::PackedView& weight, ConstRows x, Rows y) {
    if (weight.bf16) {
      const Rows rounded{rounded_.take<float>(x.rows * x.cols), x.rows, x.cols, x.cols};
      launch<&cuda::round_to_bf16<CudaGpu>>({.x = x.rows, .threads = kRowThreads}, x, rounded);
      x = rounded;
    }
    launch<&cuda::matmul<CudaGpu>>({.x = (weight.outputs + cuda::kMatmulThreads - 1) / cuda::kMatmulThreads,
                                    .y = (x.rows + cuda::kMatmulRows - 1) / cuda::kMatmulRows,
                                    .threads = cuda::kMatmulThreads},
                                   weight, x, y);
  }

  template <auto kFunction, typename... Arguments>
  void launch(const Grid& grid, const Arguments&... arguments) {
    Launch<kFunction>::on(stream_.get(), grid, arguments...);
    cuda_check(cudaGetLastError(), "kernel launch");
  }

  static Grid decision_grid(ConstRows logits, std::span<const Range> slices) {
    return {.x = static_cast<std::int64_t>(slices.size()),
            .y = logits.rows,
            .threads = cuda::kDecisionThreads,
            .shared_bytes = cuda::kDecisionSharedBytes};
  }

  void bring_back(std::span<std::byte> host, const void* device, Stream stream) {
    download(host, static_cast<const std::byte*>(device), stream);
    synchronize(stream);
  }

  cuda::VisibleSlots visible_slots(const RowChain& chain) {
    const std::int64_t rows = chain.rows();
    depth_.resize(rows);
    bool in_order = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t parent = chain.parent[r];
      check(parent >= -1 && parent < r, "a row's parent must come before it");
      depth_[r] = parent < 0 ? 0 : depth_[parent] + 1;
      in_order = in_order && depth_[r] == r;
    }
    cuda::VisibleSlots visible{chain.first_slot, parameters_.keep(std::span<const std::int32_t>(depth_)), nullptr,
                               rows};
    if (!in_order) {
      path_.assign(rows * rows, 0);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::int64_t at = r;
        for (std::int64_t d = depth_[r]; d >= 0; --d, at = chain.parent[at]) {
          path_[r * rows + d] = static_cast<std::int32_t>(at);
        }
      }
      visible.path = parameters_.keep(std::span<const std::int32_t>(path_));
    }
    return visible;
  }

  CudaOptions options_;
  CudaDevice device_;
  OwnedStream stream_;
  cuda::Parameters parameters_;
  Scratch rounded_;
  std::vector<std::int32_t> depth_;  // host, of the rows of a pass
  std::vector<std::int32_t> path_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace specdec
