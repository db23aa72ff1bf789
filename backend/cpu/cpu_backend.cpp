#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backend/cpu/cache_sizes.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cpu/parallel_for.h"
#include "backend/error.h"
#include "backend/host_buffer.h"
#include "backend/host_table.h"

namespace specdec {

namespace {

/// Elements of an elementwise operation below which waking the other threads costs more than it saves.
constexpr std::int64_t kElementsWorthSharing = 1 << 15;

Isa supported(Isa isa) {
  if (isa > detect_isa()) {
    throw_bad_input(fmt::format("isa: found {}, expected at most {}, the strongest of this CPU", name_of(isa),
                                name_of(detect_isa())));
  }
  return isa;
}

int positive(int threads) {
  if (threads < 1) {
    throw_bad_input(fmt::format("threads: found {}, expected at least 1", threads));
  }
  return threads;
}

}  // namespace

CpuBackend::CpuBackend(Isa isa, int threads, ThreadPool::Pin pin, PackedCache* cache)
    : isa_(supported(isa)),
      ops_(row_ops(isa)),
      pool_(positive(threads), pin),
      cache_(cache),
      distance_(pool_),
      attention_(ops_, pool_, second_level_cache_bytes().value_or(0)) {
  flush_subnormals_to_zero();
}

std::string CpuBackend::description() const {
  return fmt::format("cpu ({}, {} thread{})", name_of(isa_), pool_.size(), pool_.size() == 1 ? "" : "s");
}

std::unique_ptr<Buffer> CpuBackend::allocate(std::size_t bytes) { return std::make_unique<HostBuffer>(bytes); }

void CpuBackend::upload(std::byte* device, std::span<const std::byte> host, Stream) {
  std::copy(host.begin(), host.end(), device);
}

void CpuBackend::download(std::span<std::byte> host, const std::byte* device, Stream) {
  std::copy_n(device, host.size(), host.begin());
}

void CpuBackend::synchronize(Stream) {}

std::unique_ptr<RowTable> CpuBackend::make_table(const WeightView& weight) {
  return std::make_unique<HostTable>(weight);
}

void CpuBackend::embed(const RowTable& table, const std::int32_t* index, Rows x, Stream) {
  distance_.look();  // a pass begins
  static_cast<const HostTable&>(table).read(index, x);
}

std::unique_ptr<PackedLinear> CpuBackend::pack(const LinearSpec& spec) {
  if (spec.dtype == DType::kF16) {
    throw_bad_input("dtype: found \"f16\" with the backend \"cpu\", expected \"bf16\", \"f32\" or \"int8\"");
  }
  auto linear = std::make_unique<CpuPackedLinear>(spec, isa_, pool_, cache_);
  matmul_scratch_.reserve(*linear, pool_.size());
  return linear;
}

void CpuBackend::matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream) {
  const auto& packed = static_cast<const CpuPackedLinear&>(weight);
  // Attention comes after what is stacked, and is shared out; after others residual and norm, by as many threads as so many elements are worth.
  const bool by_caller = packed.stacked_panels().empty() && threads_sharing(y.rows * y.cols) == 1;
  const Readers of_far = by_caller ? Readers::kCaller : Readers::kTeam;
  specdec::matmul(packed, x, y, matmul_scratch_, pool_, pool_.is_far() ? of_far : Readers::kNear);
}

void CpuBackend::matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows gate_up, Rows out,
                                 Stream stream) {
  const auto& packed = static_cast<const CpuPackedLinear&>(weight);
  // Of weights from memory it takes longer at once (docs/kernels.md, "Threads of a rank, ranks of a host").
  if (packed.gate_panels() == 0 || matmul_scratch_.will_read_from(packed) == ReadFrom::kMemory) {
    Backend::matmul_silu_mul(weight, x, bias, gate_up, out, stream);
    return;
  }
  specdec::matmul_silu_mul(packed, x, bias, out, ops_, results(), matmul_scratch_, pool_);
}

int CpuBackend::threads_sharing(std::int64_t elements) const {
  return elements < kElementsWorthSharing ? 1 : pool_.size();
}

template <typename Task>
void CpuBackend::for_rows(std::int64_t rows, std::int64_t cols, const Task& task) {
  parallel_for(pool_, threads_sharing(rows * cols), rows, [=](int, std::int64_t row) { task(row); });
}

void CpuBackend::rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream) {
  for_rows(x.rows, x.cols, [&](std::int64_t r) { results().rms_norm(x.row(r), weight, eps, y.row(r), x.cols); });
}

void CpuBackend::layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream) {
  for_rows(x.rows, x.cols,
           [&](std::int64_t r) { results().layer_norm(x.row(r), weight, bias, eps, y.row(r), x.cols); });
}

void CpuBackend::add_rms_norm(Rows x, ConstRows y, const float* weight, float eps, Rows z, Stream) {
  for_rows(x.rows, x.cols, [&](std::int64_t r) {
    ops_.add(x.row(r), y.row(r), x.cols);
    results().rms_norm(x.row(r), weight, eps, z.row(r), x.cols);
  });
}

void CpuBackend::add_layer_norm(Rows x, ConstRows y, const float* weight, const float* bias, float eps, Rows z,
                                Stream) {
  for_rows(x.rows, x.cols, [&](std::int64_t r) {
    ops_.add(x.row(r), y.row(r), x.cols);
    results().layer_norm(x.row(r), weight, bias, eps, z.row(r), x.cols);
  });
}

void CpuBackend::rope(Rows x, std::int64_t head_dim, const float* cos, const float* sin, const RowChain& chain,
                      Stream) {
  for_rows(x.rows, x.cols, [=, this, &chain](std::int64_t r) {
    const std::int64_t table = chain.position[r] * (head_dim / 2);
    ops_.rope(x.row(r), x.cols / head_dim, head_dim, cos + table, sin + table);
  });
}

std::unique_ptr<KvStore> CpuBackend::make_kv(const KvShape& shape) { return std::make_unique<CpuKv>(shape); }

void CpuBackend::kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys, ConstRows values,
                           Stream) {
  static_cast<CpuKv&>(kv).append(layer, chain.first_slot, keys, values);
}

void CpuBackend::kv_move(KvStore& kv, std::int64_t from, std::int64_t to, Stream) {
  static_cast<CpuKv&>(kv).move(from, to);
}

void CpuBackend::attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                           std::span<const std::int32_t> kv_head, float scale, Rows out, Stream) {
  attention_.forward(q, static_cast<const CpuKv&>(kv), layer, chain, kv_head, scale, out, results());
}

void CpuBackend::rope_append_attention(const NewHeads& heads, KvStore& kv, std::int64_t layer, const RowChain& chain,
                                       std::span<const std::int32_t> kv_head, float scale, Rows out, Stream) {
  attention_.forward_new(heads, static_cast<CpuKv&>(kv), layer, chain, kv_head, scale, out, results());
}

void CpuBackend::silu_mul(ConstRows gate_up, Rows out, Stream) {
  for_rows(out.rows, out.cols, [&](std::int64_t r) {
    results().silu_mul(gate_up.row(r), gate_up.row(r) + out.cols, gate_up.stride, out.row(r), out.stride, 1, out.cols);
  });
}

void CpuBackend::gelu_tanh(Rows x, Stream) {
  for_rows(x.rows, x.cols, [&](std::int64_t r) { ops_.gelu_tanh(x.row(r), x.cols); });
}

void CpuBackend::add_bias(Rows y, const float* bias, Stream) {
  for_rows(y.rows, y.cols, [&](std::int64_t r) { ops_.add(y.row(r), bias, y.cols); });
}

void CpuBackend::add(Rows x, ConstRows y, Stream) {
  for_rows(x.rows, x.cols, [&](std::int64_t r) { ops_.add(x.row(r), y.row(r), x.cols); });
}

void CpuBackend::slice_max(ConstRows logits, std::span<const Range> slices, std::span<SliceMax> out, Stream) {
  for_rows(logits.rows, logits.cols, [&](std::int64_t r) {
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const Range slice = slices[s];
      SliceMax& best = out[r * slices.size() + s];
      if (slice.empty()) {
        best = {-std::numeric_limits<float>::infinity(), -1};
        continue;
      }
      const float* row = logits.row(r) + slice.begin;
      best.value = ops_.max(row, slice.size());
      const std::int64_t index = ops_.find(row, slice.size(), best.value);
      // Not found: all are NaN.
      best.index = static_cast<std::int32_t>(slice.begin + (index < slice.size() ? index : 0));
    }
  });
}

void CpuBackend::slice_sum(ConstRows logits, float temperature, std::span<const Range> slices, std::span<SliceSum> out,
                           Stream) {
  for_rows(logits.rows, logits.cols, [&](std::int64_t r) {
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const Range slice = slices[s];
      SliceSum& result = out[r * slices.size() + s];
      if (slice.empty()) {
        result = {-std::numeric_limits<float>::infinity(), 0};
        continue;
      }
      const float* row = logits.row(r) + slice.begin;
      result.max = ops_.max(row, slice.size()) / temperature;
      result.sum = static_cast<float>(ops_.sum_scaled_exp(row, temperature, result.max, slice.size()));
    }
  });
}

}  // namespace specdec
