#pragma once

#include <memory>

#include "backend/backend.h"

namespace specdec {

/// The oracle: every operation as the plainest loop that says what it means, in fp32, one thread, libm's functions. Fast kernels are tested
/// against it; it is tested by hand. It keeps the rules that make rows independent of each other, so it can run a model too.
class ReferenceBackend final : public Backend {
 public:
  std::string description() const override { return "reference"; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes) override;
  void upload(std::byte* device, std::span<const std::byte> host, Stream stream) override;
  void download(std::span<std::byte> host, const std::byte* device, Stream stream) override;
  void synchronize(Stream stream) override;

  std::unique_ptr<RowTable> make_table(const WeightView& weight) override;
  void embed(const RowTable& table, const std::int32_t* index, Rows x, Stream stream) override;

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override;
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override;

  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream stream) override;
  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream stream) override;

  void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, const RowChain& chain,
            Stream stream) override;
  std::unique_ptr<KvStore> make_kv(const KvShape& shape) override;
  void kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys, ConstRows values,
                 Stream stream) override;
  void kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream stream) override;
  void attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) override;

  void silu_mul(ConstRows gate_up, Rows out, Stream stream) override;
  void gelu_tanh(Rows x, Stream stream) override;
  void add_bias(Rows y, const float* bias, Stream stream) override;
  void add(Rows x, ConstRows y, Stream stream) override;

  void slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream stream) override;
  void slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                 Stream stream) override;
};

}  // namespace specdec
