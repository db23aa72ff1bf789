#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/forwarding_backend.h"
#include "runtime/clock.h"

namespace specdec {

/// What operations of one kind did since the last reset.
struct OperationCost {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;  ///< that it must read or write at least once: weights, keys and values, rows
  double weight_bytes = 0;
  double multiply_adds = 0;  ///< in fp32, of attention: each row's with all that it sees, twice
};

/// A backend of the host that takes the time of each operation, fused ones whole, and counts what it must move.
class MeasuredBackend final : public ObservingBackend {
 public:
  explicit MeasuredBackend(std::unique_ptr<Backend> inner) : ObservingBackend(std::move(inner)) {}

  void reset() {
    for (OperationCost& cost : costs_) cost = {.name = std::move(cost.name)};
  }
  /// In the order in which passes came to them first.
  const std::vector<OperationCost>& costs() const { return costs_; }

  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream stream) override {
    timed({"product", weight.in_features(), weight.out_features()}, of_product(weight, size_of(x) + size_of(y)),
          [&] { ObservingBackend::matmul(weight, x, y, stream); });
  }
  void matmul_silu_mul(const PackedLinear& weight, ConstRows x, const float* bias, Rows gate_up, Rows out,
                       Stream stream) override {
    timed({"gated product", weight.in_features(), weight.out_features()}, of_product(weight, size_of(x) + size_of(out)),
          [&] { ObservingBackend::matmul_silu_mul(weight, x, bias, gate_up, out, stream); });
  }
  void rms_norm(ConstRows x, const float* weight, float eps, Rows y, Stream stream) override {
    timed({"norm"}, {size_of(x) + size_of(y)}, [&] { ObservingBackend::rms_norm(x, weight, eps, y, stream); });
  }
  void layer_norm(ConstRows x, const float* weight, const float* bias, float eps, Rows y, Stream stream) override {
    timed({"norm"}, {size_of(x) + size_of(y)}, [&] { ObservingBackend::layer_norm(x, weight, bias, eps, y, stream); });
  }
  void add_rms_norm(Rows x, ConstRows y, const float* weight, float eps, Rows z, Stream stream) override {
    timed({"residual and norm"}, {4 * size_of(x)},
          [&] { ObservingBackend::add_rms_norm(x, y, weight, eps, z, stream); });
  }
  void add_layer_norm(Rows x, ConstRows y, const float* weight, const float* bias, float eps, Rows z,
                      Stream stream) override {
    timed({"residual and norm"}, {4 * size_of(x)},
          [&] { ObservingBackend::add_layer_norm(x, y, weight, bias, eps, z, stream); });
  }
  void embed(const RowTable& table, const std::int32_t* index, Rows x, Stream stream) override {
    timed({"embedding"}, {2 * size_of(x)}, [&] { ObservingBackend::embed(table, index, x, stream); });
  }
  void kv_append(KvStore& kv, std::int64_t layer, const RowChain& chain, ConstRows keys, ConstRows values,
                 Stream stream) override {
    timed({"append to the KV cache"}, {2 * (size_of(keys) + size_of(values))},
          [&] { ObservingBackend::kv_append(kv, layer, chain, keys, values, stream); });
  }
  void attention(ConstRows q, const KvStore& kv, std::int64_t layer, const RowChain& chain,
                 std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) override {
    timed({"attention"}, of_attention(q, kv, chain, size_of(out)),
          [&] { ObservingBackend::attention(q, kv, layer, chain, kv_head, scale, out, stream); });
  }
  void rope_append_attention(const NewHeads& heads, KvStore& kv, std::int64_t layer, const RowChain& chain,
                             std::span<const std::int32_t> kv_head, float scale, Rows out, Stream stream) override {
    // Read where the product left them, and appended.
    const double own = 2 * (size_of(heads.keys) + size_of(heads.values));
    timed({"rotary embedding and attention"}, of_attention(heads.query, kv, chain, size_of(out) + own),
          [&] { ObservingBackend::rope_append_attention(heads, kv, layer, chain, kv_head, scale, out, stream); });
  }
  void silu_mul(ConstRows gate_up, Rows out, Stream stream) override {
    timed({"activation"}, {size_of(gate_up) + size_of(out)}, [&] { ObservingBackend::silu_mul(gate_up, out, stream); });
  }
  void gelu_tanh(Rows x, Stream stream) override {
    timed({"activation"}, {2 * size_of(x)}, [&] { ObservingBackend::gelu_tanh(x, stream); });
  }
  void add_bias(Rows y, const float* bias, Stream stream) override {
    timed({"bias"}, {2 * size_of(y)}, [&] { ObservingBackend::add_bias(y, bias, stream); });
  }
  void add(Rows x, ConstRows y, Stream stream) override {
    timed({"residual"}, {3 * size_of(x)}, [&] { ObservingBackend::add(x, y, stream); });
  }

 private:
  template <typename SomeRows>
  static double size_of(const SomeRows& rows) {
    return static_cast<double>(rows.rows * rows.cols) * sizeof(float);
  }

  /// What one call moves and multiplies, as OperationCost has it.
  struct Work {
    double bytes = 0;
    double weight_bytes = 0;
    double multiply_adds = 0;
  };
  /// `rows_bytes`: besides those of q.
  static Work of_attention(ConstRows q, const KvStore& kv, const RowChain& chain, double rows_bytes) {
    const KvShape& shape = kv.shape();
    const auto slots = static_cast<double>(chain.first_slot + chain.rows());
    const double cache = 2 * slots * static_cast<double>(shape.kv_heads * shape.head_dim) * sizeof(float);
    // Row i of a chain sees what was there and the rows up to itself.
    const double seen = static_cast<double>(chain.rows()) * (static_cast<double>(chain.first_slot) + slots + 1) / 2;
    return {.bytes = cache + size_of(q) + rows_bytes, .multiply_adds = 2 * seen * static_cast<double>(q.cols)};
  }
  static Work of_product(const PackedLinear& weight, double rows_bytes) {
    const auto weight_bytes = static_cast<double>(weight.bytes());
    return {.bytes = weight_bytes + rows_bytes, .weight_bytes = weight_bytes};
  }

  /// A product goes by its features too.
  struct Kind {
    std::string_view what;
    std::int64_t in = -1;
    std::int64_t out = -1;
    bool operator==(const Kind&) const = default;

    std::string name() const { return in < 0 ? std::string(what) : fmt::format("{} {} to {}", what, in, out); }
  };

  /// Of a kind that came before it allocates nothing: a small model's operations take no longer than that would.
  template <typename Operation>
  void timed(const Kind& kind, const Work& work, const Operation& operation) {
    const auto found = std::ranges::find(kinds_, kind);
    const auto which = static_cast<std::size_t>(found - kinds_.begin());
    if (found == kinds_.end()) {
      kinds_.push_back(kind);
      costs_.push_back({.name = kind.name()});
    }
    OperationCost& cost = costs_[which];
    const double start = now_seconds();
    operation();
    cost.seconds += now_seconds() - start;
    cost.bytes += work.bytes;
    cost.weight_bytes += work.weight_bytes;
    cost.multiply_adds += work.multiply_adds;
    ++cost.calls;
  }

  std::vector<Kind> kinds_;
  std::vector<OperationCost> costs_;
};

}  // namespace specdec
