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

/// x[r] = row index[r] of a table [rows, cols] of `type`, aligned to its elements.
template <class Gpu>
SPECDEC_DEVICE void embed(Gpu& gpu, const std::byte* table, DType type, const std::int32_t* index, Rows x) {
  const std::int64_t first = index[gpu.block_x()] * x.cols;
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    float value = 0;
    if (type == DType::kF32) {
      value = reinterpret_cast<const float*>(table)[first + i];
    } else {
      const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(table)[first + i];
      value = type == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
    }
    x.row(gpu.block_x())[i] = value;
  }
}

/// Threads: kWarp, of which 16 add. Element i of a row is summed in lane i mod 16, in order; then the lanes in their tree.
template <class Gpu>
SPECDEC_DEVICE void rms_norm(Gpu& gpu, ConstRows x, const float* weight, float eps, Rows y) {
  const float* row = x.row(gpu.block_x());
  float squares = 0;
  if (gpu.thread() < kRowLanes) {
    for (std::int64_t i = gpu.thread(); i < x.cols; i += kRowLanes) {
      squares = fused(row[i], row[i], squares);
    }
  }
  const float inverse = 1.0F / std::sqrt(tree_sum(gpu, squares) / static_cast<float>(x.cols) + eps);
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    y.row(gpu.block_x())[i] = row[i] * inverse * weight[i];
  }
}

/// As rms_norm.
template <class Gpu>
SPECDEC_DEVICE void layer_norm(Gpu& gpu, ConstRows x, const float* weight, const float* bias, float eps, Rows y) {
  const float* row = x.row(gpu.block_x());
  const bool adds = gpu.thread() < kRowLanes;
  float sum = 0;
  for (std::int64_t i = gpu.thread(); adds && i < x.cols; i += kRowLanes) {
    sum = sum + row[i];
  }
  const float mean = tree_sum(gpu, sum) / static_cast<float>(x.cols);
  float squares = 0;
  for (std::int64_t i = gpu.thread(); adds && i < x.cols; i += kRowLanes) {
    const float centred = row[i] - mean;
    squares = fused(centred, centred, squares);
  }
  const float inverse = 1.0F / std::sqrt(tree_sum(gpu, squares) / static_cast<float>(x.cols) + eps);
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    y.row(gpu.block_x())[i] = fused((row[i] - mean) * inverse, weight[i], bias[i]);
  }
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
template <class Gpu>
SPECDEC_DEVICE void add(Gpu& gpu, Rows x, ConstRows y) {
  float* row = x.row(gpu.block_x());
  const float* other = y.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    row[i] = other[i] + row[i];
  }
}

/// out = x rounded to bf16, as fp32: what a product with bf16 weights takes.
template <class Gpu>
SPECDEC_DEVICE void round_to_bf16(Gpu& gpu, ConstRows x, Rows out) {
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    out.row(gpu.block_x())[i] = bf16_to_float(float_to_bf16(x.row(gpu.block_x())[i]));
  }
}

}  // namespace specdec::cuda
