#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/core_distance.h"
#include "backend/cpu/cpu_attention.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/packed_cache.h"
#include "backend/cpu/row_ops.h"
#include "backend/cpu/thread_pool.h"

namespace specdec {

/// The fast backend for CPUs: one instruction set, chosen once, and a team of threads. Apart from matmul every operation gives the same bits
/// on every instruction set; all of them do for any number of threads and whatever other rows share the pass.
///
/// Made and used on one thread, which it sets to flush subnormals to zero, as its team does. After the first pass of a size nothing is
/// allocated.
class CpuBackend final : public Backend {
 public:
  /// Throws kBadInput if this CPU lacks `isa`, threads < 1, or the machine does not let so many threads start.
  /// pack() takes from `cache` what it holds, and keeps there what it does not; null: it packs. It must outlive the backend.
  CpuBackend(Isa isa, int threads, ThreadPool::Pin pin = ThreadPool::Pin::kNone, PackedCache* cache = nullptr);

  std::string description() const override;

  std::unique_ptr<Buffer> allocate(std::size_t bytes) override;
  void upload(std::byte* device, std::span<const std::byte> host, Stream stream) override;
  void download(std::span<std::byte> host, const std::byte* device, Stream stream) override;
  void synchronize(Stream stream) override;

  std::unique_ptr<RowTable> make_table(const WeightView& weight) override;
  void embed(const RowTable& table, const std::int32_t* index, Rows x, Stream stream) override;

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override;
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override;
  void matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows gate_up, Rows out,
                       Stream stream) override;

  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream stream) override;
  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream stream) override;

  void add_rms_norm(Rows x, ConstRows y, const float* weight, float eps, Rows z, Stream stream) override;
  void add_layer_norm(Rows x, ConstRows y, const float* weight, const float* bias, float eps, Rows z,
                      Stream stream) override;

  void rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, const RowChain& chain,
            Stream stream) override;
  std::unique_ptr<KvStore> make_kv(const KvShape& shape) override;
  void kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys, ConstRows values,
                 Stream stream) override;
  void kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream stream) override;
  void attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) override;
  void rope_append_attention(const NewHeads& heads, KvStore& kv, std::int64_t layer, const RowChain& chain,
                             std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) override;

  void silu_mul(ConstRows gate_up, Rows out, Stream stream) override;
  void gelu_tanh(Rows x, Stream stream) override;
  void add_bias(Rows y, const float* bias, Stream stream) override;
  void add(Rows x, ConstRows y, Stream stream) override;

  void slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream stream) override;
  void slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                 Stream stream) override;

 private:
  /// All, when so many elements are worth it.
  int threads_sharing(std::int64_t elements) const;
  /// Calls task(row) for every row, on several threads when rows * cols elements are worth it.
  template <typename Task>
  void for_rows(std::int64_t rows, std::int64_t cols, const Task& task);

  /// Of operations whose results the next product reads: past the caches where the team's cores are far from each other.
  const ResultOps& results() const { return pool_.is_far() ? ops_.for_others : ops_.kept; }

  Isa isa_;
  const RowOps& ops_;
  ThreadPool pool_;
  PackedCache* cache_;
  CoreDistance distance_;
  MatmulScratch matmul_scratch_;
  CpuAttention attention_;
};

}  // namespace specdec
