#pragma once

#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/dtype.h"
#include "backend/elementary.h"
#include "backend/tensor.h"

/// What is done to every row by itself, with the bits of backend/cpu/norm_inl.h and elementwise_inl.h. One block a row.
namespace specdec::cuda {

using elementary::fused;

/// x[r] = row index[r] of a table [rows, cols] of `type`, aligned to its elements; zeros for -1.
template <class Gpu>
SPECDEC_DEVICE void embed(Gpu& gpu, const std::byte* table, DType type, const std::int32_t* index, Rows x) {
  const std::int64_t first = index[gpu.block_x()] * x.cols;
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    float value = 0;
    if (first < 0) {
      value = 0;
    } else if (type == DType::kF32) {
      value = reinterpret_cast<const float*>(table)[first + i];
    } else {
      const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(table)[first + i];
      value = type == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
    }
    x.row(gpu.block_x())[i] = value;
  }
}

template <class Gpu>
SPECDEC_DEVICE void add(Gpu& gpu, Rows x, ConstRows y) {
  float* row = x.row(gpu.block_x());
  const float* other = y.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    row[i] = other[i] + row[i];
  }
}

inline constexpr std::int64_t kFoldedFloats = 4096;
inline constexpr std::size_t kFoldSharedBytes = kFoldedFloats * sizeof(float);

/// The sum of a row: element i goes to lane i mod 16, fold(sum, element) in order, then the lanes in their tree. All threads bring the row to the
/// block's memory, 16 of them add, every one gets the sum. kFoldSharedBytes.
template <class Gpu, typename Fold>
SPECDEC_DEVICE float fold_row(Gpu& gpu, const float* row, std::int64_t cols, const Fold& fold) {
  constexpr int kAhead = 8;  // elements of a lane that are read before the first is added
  auto* part = reinterpret_cast<float*>(gpu.shared());
  float sum = 0;
  for (std::int64_t first = 0; first < cols; first += kFoldedFloats) {
    const std::int64_t count = cols - first < kFoldedFloats ? cols - first : kFoldedFloats;
    for (std::int64_t i = gpu.thread(); i < count; i += gpu.threads()) {
      part[i] = row[first + i];
    }
    gpu.sync();
    if (gpu.thread() < kRowLanes) {
      std::int64_t i = gpu.thread();
      for (; i + (kAhead - 1) * kRowLanes < count; i += kAhead * kRowLanes) {
        float element[kAhead];
        SPECDEC_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          element[a] = part[i + a * kRowLanes];
        }
        SPECDEC_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          sum = fold(sum, element[a]);
        }
      }
      for (; i < count; i += kRowLanes) {
        sum = fold(sum, part[i]);
      }
    }
    gpu.sync();
  }
  sum = tree_sum(gpu, sum);
  if (gpu.thread() == 0) {
    part[0] = sum;
  }
  gpu.sync();
  sum = part[0];
  gpu.sync();
  return sum;
}

template <class Gpu>
SPECDEC_DEVICE void rms_norm(Gpu& gpu, ConstRows x, const float* weight, float eps, Rows y) {
  const float* row = x.row(gpu.block_x());
  const float squares = fold_row(gpu, row, x.cols, [](float sum, float value) { return fused(value, value, sum); });
  const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(x.cols) + eps);
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    y.row(gpu.block_x())[i] = row[i] * inverse * weight[i];
  }
}

template <class Gpu>
SPECDEC_DEVICE void layer_norm(Gpu& gpu, ConstRows x, const float* weight, const float* bias, float eps, Rows y) {
  const float* row = x.row(gpu.block_x());
  const float mean =
      fold_row(gpu, row, x.cols, [](float sum, float value) { return sum + value; }) / static_cast<float>(x.cols);
  const float squares = fold_row(gpu, row, x.cols, [mean](float sum, float value) {
    const float centred = value - mean;
    return fused(centred, centred, sum);
  });
  const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(x.cols) + eps);
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    y.row(gpu.block_x())[i] = fused((row[i] - mean) * inverse, weight[i], bias[i]);
  }
}

/// x = y + x and its norm in one kernel.
template <class Gpu>
SPECDEC_DEVICE void add_rms_norm(Gpu& gpu, Rows x, ConstRows y, const float* weight, float eps, Rows z) {
  add(gpu, x, y);
  gpu.sync();
  rms_norm(gpu, x, weight, eps, z);
}

template <class Gpu>
SPECDEC_DEVICE void add_layer_norm(Gpu& gpu, Rows x, ConstRows y, const float* weight, const float* bias, float eps,
                                   Rows z) {
  add(gpu, x, y);
  gpu.sync();
  layer_norm(gpu, x, weight, bias, eps, z);
}

template <class Gpu>
SPECDEC_DEVICE void rope(Gpu& gpu, Rows x, std::int64_t head_dim, const float* cos, const float* sin,
                         const std::int32_t* position) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t table = position[gpu.block_x()] * half;
  for (std::int64_t pair = gpu.thread(); pair < x.cols / 2; pair += gpu.threads()) {
    const std::int64_t i = pair % half;
    float* low = x.row(gpu.block_x()) + pair / half * head_dim + i;
    float* high = low + half;
    const float a = *low;
    const float b = *high;
    const float c = cos[table + i];
    const float s = sin[table + i];
    *low = fused(-b, s, a * c);
    *high = fused(a, s, b * c);
  }
}

template <class Gpu>
SPECDEC_DEVICE void silu_mul(Gpu& gpu, ConstRows gate_up, Rows out) {
  const float* gate = gate_up.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < out.cols; i += gpu.threads()) {
    out.row(gpu.block_x())[i] = elementary::silu(gate[i]) * gate[out.cols + i];
  }
}

template <class Gpu>
SPECDEC_DEVICE void gelu_tanh(Gpu& gpu, Rows x) {
  float* row = x.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    row[i] = elementary::gelu_tanh(row[i]);
  }
}

/// x += y; y with a stride of 0 is one row for all.

/// out = x rounded to bf16, as fp32: what a product with bf16 weights takes.
template <class Gpu>
SPECDEC_DEVICE void round_to_bf16(Gpu& gpu, ConstRows x, Rows out) {
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    out.row(gpu.block_x())[i] = bf16_to_float(float_to_bf16(x.row(gpu.block_x())[i]));
  }
}

}  // namespace specdec::cuda
