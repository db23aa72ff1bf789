#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/chain_on_device.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/gpu_products.h"
#include "backend/cuda/gpu_row_sampler.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/kernels/attention_kernel.h"
#include "backend/cuda/kernels/decision_kernels.h"
#include "backend/cuda/kernels/kv_kernels.h"
#include "backend/cuda/kernels/row_kernels.h"
#include "backend/cuda/kernels/split_attention_kernel.h"
#include "backend/cuda/pass_graphs.h"
#include "backend/cuda/random_weights.h"
#include "backend/error.h"

namespace specdec::cuda {

/// The operations of a Backend as launches of kernels, on a `Device` that runs everything in the order of the calls:
///
///     using Gpu = ...;                                      what its kernels get (kernels/device.h)
///     std::unique_ptr<Buffer> allocate(std::size_t bytes);  zero-filled
///     void upload(std::byte* to, std::span<const std::byte> from);      `from` has been read on return
///     void download(std::span<std::byte> to, const std::byte* from);    `to` is complete after synchronize()
///     void synchronize();
///     void* stream() const;                                 where it does so
///     void observe_waits(WaitObserver* observer);           as a Backend's, of synchronize()
///     std::unique_ptr<Moments> make_moments(int count);
///     void launch<&kernel>(const Grid& grid, arguments...);
///     Recording record(const std::function<void()>& launches);   what `launches` launches, which is not done yet
///     void replay(const Recording& recording);
///     void multiply_by_library(dtype, weights, x, inputs, y);   as CublasProduct::multiply
///     std::string description() const;
///
/// A GPU is one (cuda_backend.cu); the unit tests have another, which emulates it (tests/support/emulated_device.h).
template <class Device>
class GpuBackend final : public Backend {
 public:
  GpuBackend(Device device, const CudaOptions& options)
      : device_(std::move(device)),
        graphs_(options.graphs),
        together_(options.key_blocks_together),
        products_(device_, options) {}

  std::string description() const override { return device_.description() + std::string(products_.remark()); }

  bool on_host() const override { return false; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void upload(std::byte* to, std::span<const std::byte> host, Stream /*stream*/) override { device_.upload(to, host); }
  void download(std::span<std::byte> host, const std::byte* from, Stream /*stream*/) override {
    device_.download(host, from);
  }
  void synchronize(Stream /*stream*/) override { device_.synchronize(); }
  Stream stream() const override { return {device_.stream()}; }
  void observe_waits(WaitObserver* observer) override { device_.observe_waits(observer); }
  std::unique_ptr<Moments> make_moments(int count) override { return device_.make_moments(count); }

  std::unique_ptr<PassRecorder> make_recorder() override {
    if (!graphs_) {
      return Backend::make_recorder();
    }
    return std::make_unique<PassGraphs<Device>>(device_, [this](int variant, const RowChain& chain, const KvStore& kv) {
      chain_.set(device_, chain);
      return PassKey{.variant = variant,
                     .rows = chain.rows(),
                     .in_order = chain_.in_order(),
                     .kv = static_cast<const Kv&>(kv).serial,
                     .key_blocks = key_blocks(chain),
                     .chain = chain_.address()};
    });
  }

  std::unique_ptr<RowTable> make_table(const WeightView& weight) override {
    return std::make_unique<Table>(device_, weight);
  }
  void embed(const RowTable& table, const std::int32_t* index, Rows x, Stream /*stream*/) override {
    const auto& rows = static_cast<const Table&>(table);
    device_.template launch<&cuda::embed<Gpu>>(rows_of(x), rows.memory->data(), rows.dtype, index, x);
  }

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override { return products_.pack(spec); }
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream /*stream*/) override {
    products_.matmul(weight, x, y);
  }
  void matmul_before(const PackedLinear& weight, ConstRows x, Rows y, const PackedLinear& next,
                     Stream /*stream*/) override {
    products_.matmul_before(weight, x, y, next);
  }
  void matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows gate_up, Rows out,
                       Stream stream) override {
    if (!products_.matmul_silu_mul(weight, x, bias, out)) {
      Backend::matmul_silu_mul(weight, x, bias, gate_up, out, stream);
    }
  }

  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream /*stream*/) override {
    device_.template launch<&cuda::rms_norm<Gpu>>(folds_of(x), x, weight, eps, y);
  }
  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream /*stream*/) override {
    device_.template launch<&cuda::layer_norm<Gpu>>(folds_of(x), x, weight, bias, eps, y);
  }

  void add_rms_norm(Rows x, ConstRows y, const float* weight, float eps, Rows z, Stream /*stream*/) override {
    device_.template launch<&cuda::add_rms_norm<Gpu>>(folds_of(x), x, y, weight, eps, z);
  }
  void add_layer_norm(Rows x, ConstRows y, const float* weight, const float* bias, float eps, Rows z,
                      Stream /*stream*/) override {
    device_.template launch<&cuda::add_layer_norm<Gpu>>(folds_of(x), x, y, weight, bias, eps, z);
  }

  void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, const RowChain& chain,
            Stream /*stream*/) override {
    chain_.set(device_, chain);
    device_.template launch<&cuda::rope<Gpu>>(rows_of(x), x, head_dim, cos, sin, chain_.position());
  }
  std::unique_ptr<KvStore> make_kv(const KvShape& shape) override { return std::make_unique<Kv>(*this, shape); }
  void kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys, ConstRows values,
                 Stream /*stream*/) override {
    const KvView& view = appended(kv, chain, keys.rows);
    chain_.set(device_, chain);
    device_.template launch<&cuda::kv_append<Gpu>>(rows_of(keys), view, layer, chain_.first_slot(), keys, values);
  }
  void rope_append(Rows query, Rows keys, ConstRows values, std::int64_t /*head_dim*/, const float* cos,
                   const float* sin, KvStore& kv, std::int64_t layer, const RowChain& chain,
                   Stream /*stream*/) override {
    const KvView& view = appended(kv, chain, keys.rows);
    chain_.set(device_, chain);
    const Grid grid{.x = query.rows, .y = (query.cols + keys.cols) / view.shape.head_dim, .threads = kRopeThreads};
    device_.template launch<&cuda::rope_append<Gpu>>(grid, query, keys, values, cos, sin, chain_.position(), view,
                                                     layer, chain_.first_slot());
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
    const auto heads = static_cast<std::int64_t>(kv_head.size());
    chain_.set(device_, chain);
    const VisibleSlots visible = chain_.visible();
    const std::int32_t* const source = kv_heads_.on(device_, kv_head);
    const std::int64_t blocks = key_blocks(chain);
    const std::int64_t dim = view.shape.head_dim;
    if (blocks <= together_.value_or(key_blocks_together(dim)) || !can_be_split(dim) || !chain_.in_order() ||
        !std::ranges::is_sorted(kv_head)) {
      const std::int64_t at_once = std::min(blocks, kKeyBlocksAtOnce);
      const Grid grid{.x = chain.rows(),
                      .y = heads,
                      .threads = static_cast<int>(at_once * kKeyBlock),
                      .shared_bytes = attention_shared_bytes(dim, at_once)};
      device_.template launch<&cuda::attention<Gpu>>(grid, q, view, layer, visible, source, scale, out);
      return;
    }
    auto* const memory = parts_.template take<float>(device_, AttentionParts::floats(chain.rows(), heads, blocks, dim));
    const AttentionParts parts(memory, chain.rows(), heads, blocks);
    const std::vector<QueryGroup> groups = query_groups(kv_head, view.shape.kv_heads);
    const std::int64_t queries = chain.rows() * std::ranges::max(groups, {}, &QueryGroup::heads).heads;
    switch (queries_of_thread(queries, blocks * view.shape.kv_heads)) {
      case 2:
        split_attention<2>(q, view, layer, visible, groups, queries, scale, parts);
        break;
      case 4:
        split_attention<4>(q, view, layer, visible, groups, queries, scale, parts);
        break;
      default:
        split_attention<8>(q, view, layer, visible, groups, queries, scale, parts);
    }
    const Grid merge{.x = chain.rows(), .y = heads, .threads = kMergeThreads, .shared_bytes = kMergeSharedBytes};
    device_.template launch<&cuda::attention_merge<Gpu>>(merge, visible, AwaitedParts{parts}, dim, out);
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

  std::unique_ptr<RowSampler> make_row_sampler(const SamplingParams& params) override {
    return std::make_unique<GpuRowSampler<Device>>(device_, params);
  }

 private:
  using Gpu = typename Device::Gpu;
  static constexpr int kRowThreads = 256;
  /// Rows side by side: as they are where they lie so, else in fp32.
  struct Table final : RowTable {
    Table(Device& device, const WeightView& weight) {
      if (weight.random) {
        dtype = DType::kBF16;
        memory = random_table_on(device, weight);
        return;
      }
      if (weight.col_stride == 1 && weight.row_stride == weight.cols) {
        dtype = weight.dtype;
        memory = copy_on(device, std::span(weight.data, weight.rows * weight.cols * size_of(dtype)));
        return;
      }
      std::vector<float> rows(weight.rows * weight.cols);
      for (std::int64_t r = 0; r < weight.rows; ++r) {
        read_row(weight, r, std::span(rows).subspan(r * weight.cols, weight.cols));
      }
      memory = copy_on(device, std::span<const float>(rows));
    }
    DType dtype = DType::kF32;
    std::unique_ptr<Buffer> memory;
  };

  struct Kv final : KvStore {
    Kv(GpuBackend& backend, const KvShape& shape) : view{.shape = shape}, serial(++backend.stores_) {
      const auto bytes = static_cast<std::size_t>(view.floats()) * sizeof(float);
      keys = backend.device_.allocate(bytes);
      values = backend.device_.allocate(bytes);
      view.keys = keys->floats();
      view.values = values->floats();
    }
    const KvShape& shape() const override { return view.shape; }

    KvView view;
    std::uint64_t serial;
    std::unique_ptr<Buffer> keys;
    std::unique_ptr<Buffer> values;
  };

  /// Of a store that has room for `rows` more.
  static const KvView& appended(KvStore& kv, const RowChain& chain, std::int64_t rows) {
    const KvView& view = static_cast<Kv&>(kv).view;
    check(chain.first_slot >= 0 && chain.first_slot + rows <= view.shape.capacity,
          "appended rows do not fit the KV store");
    return view;
  }

  /// Blocks of keys that the rows of `chain` see, rounded up to a power of two: so many a grid covers, and so many graphs a long text needs.
  static std::int64_t key_blocks(const RowChain& chain) {
    const std::int64_t slots = chain.first_slot + chain.rows();
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>((slots + kKeyBlock - 1) / kKeyBlock)));
  }

  /// Scores and weighted values of all blocks of keys, for at most `queries` that share a KV head.
  template <int kQueries>
  void split_attention(ConstRows q, const KvView& view, std::int64_t layer, const VisibleSlots& visible,
                       const std::vector<QueryGroup>& groups, std::int64_t queries, float scale,
                       const AttentionParts& parts) {
    const std::int64_t dim = view.shape.head_dim;
    const QueryGroup* const on_device = groups_.on(device_, groups);
    const auto grid = [&](const SplitShape& shape) {
      return Grid{.x = parts.blocks * shape.tiles,
                  .y = view.shape.kv_heads,
                  .threads = shape.threads(),
                  .shared_bytes = shape.shared_bytes(dim)};
    };
    const SplitShape scores = scores_shape<kQueries>(queries, parts.blocks * view.shape.kv_heads, dim);
    device_.template launch<&cuda::attention_scores<Gpu, kQueries>>(grid(scores), q, view, layer, visible, on_device,
                                                                    scale, parts);
    const SplitShape values = values_shape<kQueries>(scores, dim);
    device_.template launch<&cuda::attention_values<Gpu, kQueries>>(
        grid(values), view, layer, visible, on_device, static_cast<std::int32_t>(values.tile), AwaitedParts{parts});
  }

  /// Of each KV head. `kv_head` is sorted.
  static std::vector<QueryGroup> query_groups(std::span<const std::int32_t> kv_head, std::int64_t kv_heads) {
    std::vector<QueryGroup> groups;
    for (std::int32_t source = 0; source < kv_heads; ++source) {
      const auto heads = std::ranges::equal_range(kv_head, source);
      groups.push_back({.first = static_cast<std::int32_t>(heads.begin() - kv_head.begin()),
                        .heads = static_cast<std::int32_t>(std::ssize(heads))});
    }
    return groups;
  }

  static Grid rows_of(ConstRows x) { return {.x = x.rows, .threads = kRowThreads}; }
  static Grid folds_of(ConstRows x) {
    return {.x = x.rows, .threads = kFoldThreads, .shared_bytes = fold_shared_bytes(x.cols)};
  }
  static Grid slices_of(ConstRows logits, std::span<const Range> slices) {
    return {
        .x = std::ssize(slices), .y = logits.rows, .threads = kDecisionThreads, .shared_bytes = kDecisionSharedBytes};
  }

  void bring_back(std::span<std::byte> host, const void* from) {
    device_.download(host, static_cast<const std::byte*>(from));
    device_.synchronize();
  }

  Device device_;
  bool graphs_;
  std::optional<std::int64_t> together_;  // CudaOptions::key_blocks_together
  std::uint64_t stores_ = 0;              // made so far
  Products<Device> products_;
  Scratch<Device> found_;  // statistics of slices
  Scratch<Device> parts_;  // of an attention
  Constants<Device, std::int32_t> kv_heads_;
  Constants<Device, QueryGroup> groups_;
  Constants<Device, Range> slices_;
  ChainOnDevice<Device> chain_;
};

}  // namespace specdec::cuda
