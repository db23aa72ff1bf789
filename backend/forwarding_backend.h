#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"

namespace specdec {

/// Does all that another backend does, the fused operations by their parts, so that what derives from it sees each: it measures an operation, or, in tests, computes one in
/// another way, or wrongly. A backend that fuses takes another time behind it (but see ObservingBackend).
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : owned_(std::move(inner)), inner_(owned_.get()) {}
  /// `inner` outlives it.
  explicit ForwardingBackend(Backend& inner) : inner_(&inner) {}

  std::string description() const override { return inner_->description(); }
  bool on_host() const override { return inner_->on_host(); }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void upload(std::byte* device, std::span<const std::byte> host, Stream stream) override {
    inner_->upload(device, host, stream);
  }
  void download(std::span<std::byte> host, const std::byte* device, Stream stream) override {
    inner_->download(host, device, stream);
  }
  void synchronize(Stream stream) override { inner_->synchronize(stream); }
  Stream stream() const override { return inner_->stream(); }
  void observe_waits(WaitObserver* observer) override { inner_->observe_waits(observer); }
  std::unique_ptr<Moments> make_moments(int count) override { return inner_->make_moments(count); }
  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override { return inner_->pack(spec); }
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override {
    inner_->matmul(weight, x, y, stream);
  }
  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream stream) override {
    inner_->rms_norm(x, weight, eps, y, stream);
  }
  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream stream) override {
    inner_->layer_norm(x, weight, bias, eps, y, stream);
  }
  std::unique_ptr<PassRecorder> make_recorder() override { return inner_->make_recorder(); }
  std::unique_ptr<RowTable> make_table(const WeightView& weight) override { return inner_->make_table(weight); }
  void embed(const RowTable& table, const std::int32_t* index, Rows x, Stream stream) override {
    inner_->embed(table, index, x, stream);
  }
  void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, const RowChain& chain,
            Stream stream) override {
    inner_->rope(x, head_dim, cos, sin, chain, stream);
  }
  std::unique_ptr<KvStore> make_kv(const KvShape& shape) override { return inner_->make_kv(shape); }
  void kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys, ConstRows values,
                 Stream stream) override {
    inner_->kv_append(kv, layer, chain, keys, values, stream);
  }
  void kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream stream) override {
    inner_->kv_move(kv, from, to, stream);
  }
  void attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) override {
    inner_->attention(q, kv, layer, chain, kv_head, scale, out, stream);
  }
  void silu_mul(ConstRows gate_up, Rows out, Stream stream) override { inner_->silu_mul(gate_up, out, stream); }
  void gelu_tanh(Rows x, Stream stream) override { inner_->gelu_tanh(x, stream); }
  void add_bias(Rows y, const float* bias, Stream stream) override { inner_->add_bias(y, bias, stream); }
  void add(Rows x, ConstRows y, Stream stream) override { inner_->add(x, y, stream); }
  void slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream stream) override {
    inner_->slice_max(logits, slices, out, stream);
  }
  void slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                 Stream stream) override {
    inner_->slice_sum(logits, temperature, slices, out, stream);
  }

 protected:
  Backend& inner() { return *inner_; }

 private:
  std::unique_ptr<Backend> owned_;
  Backend* inner_;
};

/// The same with the fused operations whole, for what measures and changes nothing.
class ObservingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows gate_up, Rows out,
                       Stream stream) override {
    inner().matmul_silu_mul(weight, x, bias, gate_up, out, stream);
  }
  void add_rms_norm(Rows x, ConstRows y, const float* weight, float eps, Rows z, Stream stream) override {
    inner().add_rms_norm(x, y, weight, eps, z, stream);
  }
  void add_layer_norm(Rows x, ConstRows y, const float* weight, const float* bias, float eps, Rows z,
                      Stream stream) override {
    inner().add_layer_norm(x, y, weight, bias, eps, z, stream);
  }
  void rope_append(Rows query, Rows keys, ConstRows values, std::int64_t head_dim, const float* cos, const float* sin,
                   KvStore& kv, std::int64_t layer, const RowChain& chain, Stream stream) override {
    inner().rope_append(query, keys, values, head_dim, cos, sin, kv, layer, chain, stream);
  }
  void rope_append_attention(const NewHeads& heads, KvStore& kv, std::int64_t layer, const RowChain& chain,
                             std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) override {
    inner().rope_append_attention(heads, kv, layer, chain, kv_head, scale, out, stream);
  }
};

}  // namespace specdec
