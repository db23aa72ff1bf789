#include "tests/support/gpu_battery.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/kernels/row_kernels.h"
#include "tests/support/gpu_matrix.h"

namespace specdec::battery {
namespace {

/// More than a block keeps in its memory.
constexpr std::int64_t kWideRow = cuda::kFoldedFloats + 30;

}  // namespace

void expect_norms_of_the_cpu(Backend& gpu) {
  for (const std::int64_t cols : {std::int64_t{1}, std::int64_t{15}, std::int64_t{37}, std::int64_t{64},
                                  std::int64_t{200}, std::int64_t{4100}, kWideRow}) {
    const auto norm = [&](Backend& backend, bool centred) {
      Matrix x(backend, 3, cols, random_values(3 * cols, 1));
      Matrix weight(backend, 1, cols, random_values(cols, 2));
      Matrix bias(backend, 1, cols, random_values(cols, 3));
      Matrix y(backend, 3, cols);
      if (centred) {
        backend.layer_norm(x.rows(), weight.data(), bias.data(), 1e-5F, y.rows(), {});
      } else {
        backend.rms_norm(x.rows(), weight.data(), 1e-5F, y.rows(), {});
      }
      return y.values();
    };
    expect_alike(
        gpu, [&](Backend& backend) { return norm(backend, false); }, "rms_norm");
    expect_alike(
        gpu, [&](Backend& backend) { return norm(backend, true); }, "layer_norm");
  }
}

void expect_embeddings_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kTokens = 9;
  constexpr std::int64_t kCols = 70;
  const Values values = random_values(kTokens * kCols, 80);
  std::vector<std::uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(), float_to_bf16);
  const std::vector<std::int32_t> index = {3, -1, 8, 0, 3};
  const auto rows = std::ssize(index);
  const auto embed = [&](Backend& backend, const WeightView& weight) {
    const auto table = backend.make_table(weight);
    const auto on_device = backend.allocate(std::as_bytes(std::span(index)).size());
    backend.upload(on_device->data(), std::as_bytes(std::span(index)), {});
    Matrix x(backend, rows, kCols, Values(rows * kCols, 7));
    backend.embed(*table, reinterpret_cast<const std::int32_t*>(on_device->data()), x.rows(), {});
    return x.values();
  };
  const auto* const floats = reinterpret_cast<const std::byte*>(values.data());
  const WeightView plain{floats, DType::kF32, kTokens, kCols, kCols, 1};
  const WeightView transposed{floats, DType::kF32, kTokens, kCols, 1, kTokens};
  const WeightView half{reinterpret_cast<const std::byte*>(halves.data()), DType::kBF16, kTokens, kCols, kCols, 1};
  const WeightView f16{reinterpret_cast<const std::byte*>(halves.data()), DType::kF16, kTokens, kCols, kCols, 1};
  for (const WeightView& weight : {plain, transposed, half, f16}) {
    expect_alike(
        gpu, [&](Backend& backend) { return embed(backend, weight); },
        "embed " + std::string(name_of(weight.dtype)) + (weight.col_stride == 1 ? "" : ", transposed"));
  }
}

void expect_norms_of_sums(Backend& gpu) {
  for (const std::int64_t cols : {std::int64_t{300}, kWideRow}) {
    const auto norm = [&](Backend& backend, bool centred) {
      Matrix x(backend, 2, cols, random_values(2 * cols, 70));
      Matrix y(backend, 2, cols, random_values(2 * cols, 71));
      Matrix weight(backend, 1, cols, random_values(cols, 72));
      Matrix z(backend, 2, cols);
      if (centred) {
        backend.add_layer_norm(x.rows(), y.rows(), weight.data(), weight.data(), 1e-5F, z.rows(), {});
      } else {
        backend.add_rms_norm(x.rows(), y.rows(), weight.data(), 1e-5F, z.rows(), {});
      }
      Values both = x.values();
      std::ranges::copy(z.values(), std::back_inserter(both));
      return both;
    };
    expect_alike(
        gpu, [&](Backend& backend) { return norm(backend, false); }, "add_rms_norm");
    expect_alike(
        gpu, [&](Backend& backend) { return norm(backend, true); }, "add_layer_norm");
  }
}

void expect_norms_in_place(Backend& gpu) {
  const auto norm = [](Backend& backend) {
    Matrix x(backend, 2, 100, random_values(200, 4));
    Matrix weight(backend, 1, 100, random_values(100, 5));
    backend.rms_norm(x.rows(), weight.data(), 1e-5F, x.rows(), {});
    return x.values();
  };
  expect_alike(gpu, norm, "rms_norm");
}

void expect_elementwise_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kCols = 75;
  Values wide = random_values(4 * kCols, 6);
  for (float& value : wide) {
    value *= 30;  // both ends of exp
  }
  const Values some = random_values(2 * kCols, 7);
  const Values others = random_values(2 * kCols, 8);
  expect_alike(
      gpu,
      [&](Backend& backend) {
        Matrix gate_up(backend, 2, 2 * kCols, wide);
        Matrix out(backend, 2, kCols);
        backend.silu_mul(gate_up.rows(), out.rows(), {});
        return out.values();
      },
      "silu_mul");
  const auto in_place = [&](Backend& backend, const std::function<void(Rows, Matrix&)>& operation) {
    Matrix x(backend, 2, kCols, some);
    Matrix y(backend, 2, kCols, others);
    operation(x.rows(), y);
    return x.values();
  };
  expect_alike(
      gpu, [&](Backend& b) { return in_place(b, [&](Rows x, Matrix&) { b.gelu_tanh(x, {}); }); }, "gelu_tanh");
  expect_alike(
      gpu, [&](Backend& b) { return in_place(b, [&](Rows x, Matrix& y) { b.add(x, y.rows(), {}); }); }, "add");
  expect_alike(
      gpu, [&](Backend& b) { return in_place(b, [&](Rows x, Matrix& y) { b.add_bias(x, y.data(), {}); }); },
      "add_bias");
}

void expect_rotations_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kDim = 20;
  const std::vector<std::int32_t> position = {5, 0, 7};
  const auto rotate = [&](Backend& backend) {
    Matrix cos(backend, 8, kDim / 2, random_values(8 * kDim / 2, 9));
    Matrix sin(backend, 8, kDim / 2, random_values(8 * kDim / 2, 10));
    Matrix x(backend, 3, kHeads * kDim, random_values(3 * kHeads * kDim, 11));
    backend.rope(x.rows(), kDim, cos.data(), sin.data(), {.position = position}, {});
    return x.values();
  };
  expect_alike(gpu, rotate, "rope");
}

namespace {

#if defined(__SANITIZE_THREAD__)
// Blocks are teams of the host's threads there (emulated_team.h), hundreds of times slower: as many cases as take every branch.
constexpr std::array<std::int64_t, 1> kHeadDims = {70};
constexpr std::array<std::int64_t, 3> kCachedSlots = {5, 130, 319};
#else
constexpr std::array<std::int64_t, 3> kHeadDims = {8, 40, 70};
constexpr std::array<std::int64_t, 6> kCachedSlots = {0, 5, 62, 130, 319, 510};
#endif

/// Rows with these parents, after `cached` slots.
void expect_attention(Backend& gpu, std::int64_t dim, std::int64_t cached, const std::vector<std::int32_t>& parent) {
  constexpr std::int64_t kKvHeads = 2;
  constexpr std::int64_t kLeftBehind = 10;
  const std::vector<std::int32_t> kv_head = {0, 0, 1, 1};
  const auto rows = static_cast<std::int64_t>(parent.size());
  const auto attend = [&](Backend& backend) {
    const auto kv =
        backend.make_kv({.layers = 2, .kv_heads = kKvHeads, .head_dim = dim, .capacity = cached + rows + kLeftBehind});
    const std::int64_t kv_cols = kKvHeads * dim;
    const auto append = [&](std::int64_t slot, std::int64_t count, const Values& keys, const Values& values) {
      Matrix of_keys(backend, count, kv_cols, keys);
      Matrix of_values(backend, count, kv_cols, values);
      backend.kv_append(*kv, 1, {.first_slot = slot}, of_keys.rows(), of_values.rows(), {});
      backend.synchronize({});
    };
    if (cached > 0) {
      append(0, cached, random_values(cached * kv_cols, 12), random_values(cached * kv_cols, 13));
    }
    append(cached, rows, random_values(rows * kv_cols, 14), random_values(rows * kv_cols, 15));
    // What a rejected draft has left behind: nobody sees it.
    const Values left_behind(static_cast<std::size_t>(kLeftBehind * kv_cols), std::numeric_limits<float>::quiet_NaN());
    append(cached + rows, kLeftBehind, left_behind, left_behind);
    const std::int64_t cols = std::ssize(kv_head) * dim;
    Matrix q(backend, rows, cols, random_values(rows * cols, 16));
    Matrix out(backend, rows, cols);
    const std::vector<std::int32_t> position(parent.size());
    backend.attention(q.rows(), *kv, 1, {position, parent, cached}, kv_head, 1.0F / std::sqrt(static_cast<float>(dim)),
                      out.rows(), {});
    return out.values();
  };
  expect_alike(gpu, attend, fmt::format("attention of {} rows over {} slots", rows, cached));
}

std::vector<std::int32_t> chain_of(int rows) {
  std::vector<std::int32_t> parent(static_cast<std::size_t>(rows));
  std::iota(parent.begin(), parent.end(), -1);
  return parent;
}

}  // namespace

void expect_attention_of_the_cpu(Backend& gpu) {
  for (const std::int64_t dim : kHeadDims) {
    for (const std::int64_t cached : kCachedSlots) {
      expect_attention(gpu, dim, cached, chain_of(10));
      expect_attention(gpu, dim, cached, {-1, 0, 0, 2, 1});
    }
  }
}

void expect_a_little_split_attention(Backend& gpu) {
  // A thread has two queries at once, and four.
  expect_attention(gpu, 70, 130, chain_of(2));
  expect_attention(gpu, 8, 70, chain_of(11));
}

void expect_split_attention_of_the_cpu(Backend& gpu) {
  for (const int rows : {1, 9, 40}) {
    for (const std::int64_t dim : kHeadDims) {
      for (const std::int64_t cached : kCachedSlots) {
        expect_attention(gpu, dim, cached, chain_of(rows));
      }
    }
  }
  // Wide heads, and heads of which no block of keys fits a block's memory.
  expect_attention(gpu, 256, 70, chain_of(20));
  expect_attention(gpu, 384, 70, chain_of(2));
  // Blocks of keys enough for every multiprocessor, and more than are merged at once: two, four and eight queries.
  for (const int rows : {2, 9, 20}) {
    expect_attention(gpu, 8, 64 * 128 + 100, chain_of(rows));
  }
}

void expect_rotated_appends(Backend& gpu) {
  constexpr std::int64_t kDim = 20;
  constexpr std::int64_t kKvHeads = 2;
  const std::vector<std::int32_t> kv_head = {0, 0, 1, 1};
  const std::vector<std::int32_t> position = {2, 3, 7};
  const std::vector<std::int32_t> parent = {-1, 0, 1};
  const auto rows = std::ssize(position);
  const std::int64_t cols = std::ssize(kv_head) * kDim;
  const auto attend = [&](Backend& backend) {
    const auto kv = backend.make_kv({.layers = 2, .kv_heads = kKvHeads, .head_dim = kDim, .capacity = 80});
    Matrix cos(backend, 8, kDim / 2, random_values(8 * kDim / 2, 50));
    Matrix sin(backend, 8, kDim / 2, random_values(8 * kDim / 2, 51));
    Matrix q(backend, rows, cols, random_values(rows * cols, 52));
    Matrix keys(backend, rows, kKvHeads * kDim, random_values(rows * kKvHeads * kDim, 53));
    Matrix values(backend, rows, kKvHeads * kDim, random_values(rows * kKvHeads * kDim, 54));
    Matrix out(backend, rows, cols);
    const RowChain chain{position, parent, 63};  // across two blocks of keys
    backend.rope_append(q.rows(), keys.rows(), values.rows(), kDim, cos.data(), sin.data(), *kv, 1, chain, {});
    backend.attention(q.rows(), *kv, 1, chain, kv_head, 0.3F, out.rows(), {});
    Values both = q.values();
    std::ranges::copy(out.values(), std::back_inserter(both));
    return both;
  };
  expect_alike(gpu, attend, "rope_append");
}

void expect_moved_slots(Backend& gpu) {
  const auto attend = [](Backend& backend) {
    const auto kv = backend.make_kv({.layers = 2, .kv_heads = 1, .head_dim = 8, .capacity = 80});
    Matrix keys(backend, 70, 8, random_values(70 * 8, 40));
    Matrix values(backend, 70, 8, random_values(70 * 8, 41));
    for (const std::int64_t layer : {0, 1}) {
      backend.kv_append(*kv, layer, {.first_slot = 0}, keys.rows(), values.rows(), {});
    }
    backend.kv_move(*kv, 69, 3, {});
    const std::vector<std::int32_t> position = {0};
    const std::vector<std::int32_t> parent = {-1};
    const std::vector<std::int32_t> kv_head = {0};
    Values both;
    for (const std::int64_t layer : {0, 1}) {
      Matrix q(backend, 1, 8, random_values(8, 42));
      Matrix out(backend, 1, 8);
      backend.attention(q.rows(), *kv, layer, {position, parent, 60}, kv_head, 0.3F, out.rows(), {});
      std::ranges::copy(out.values(), std::back_inserter(both));
    }
    return both;
  };
  expect_alike(gpu, attend, "kv_move");
}

void expect_statistics_of_the_cpu(Backend& gpu) {
  constexpr std::int64_t kCols = 700;
  const std::vector<Range> slices = {{0, 1}, {1, 1}, {1, 400}, {400, 700}};
  Values logits = random_values(3 * kCols, 60);
  logits[450] = logits[430] = 9;  // the first of two
  std::fill_n(logits.begin() + kCols + 1, 399, -std::numeric_limits<float>::infinity());
  std::fill_n(logits.begin() + 2 * kCols + 400, 300, std::numeric_limits<float>::quiet_NaN());
  const auto statistics = [&](Backend& backend) {
    Matrix rows(backend, 3, kCols, logits);
    std::vector<SliceMax> max(3 * slices.size());
    std::vector<SliceSum> sum(3 * slices.size());
    backend.slice_max(rows.rows(), slices, max, {});
    backend.slice_sum(rows.rows(), 0.7F, slices, sum, {});
    Values all;
    for (std::size_t i = 0; i < max.size(); ++i) {
      all.insert(all.end(), {max[i].value, static_cast<float>(max[i].index), sum[i].max, sum[i].sum});
    }
    return all;
  };
  expect_alike(gpu, statistics, "slice_max and slice_sum");
}

}  // namespace specdec::battery
