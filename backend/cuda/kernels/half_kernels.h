#pragma once

#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/dtype.h"
#include "backend/tensor.h"

namespace specdec::cuda {

/// halves [x.rows, x.cols] without gaps: x rounded to bf16 or fp16, for a library's products. One block a row (x).
template <class Gpu, DType kType>
SPECDEC_DEVICE void round_to_halves(Gpu& gpu, ConstRows x, std::uint16_t* halves) {
  const float* const row = x.row(gpu.block_x());
  for (std::int64_t i = gpu.thread(); i < x.cols; i += gpu.threads()) {
    halves[gpu.block_x() * x.cols + i] = static_cast<std::uint16_t>(gpu.template round_pair<kType>(row[i], 0.0F));
  }
}

}  // namespace specdec::cuda
