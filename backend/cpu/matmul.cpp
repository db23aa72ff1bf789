#include "backend/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/matmul_kernel.h"
#include "backend/error.h"

namespace specdec {
namespace {

/// Rows that share one reading of the weights from memory; bounds the scratch.
constexpr std::int64_t kBlockRows = 64;
/// Below this much weight a second thread costs more than it saves.
constexpr std::int64_t kBytesPerThread = std::int64_t{32} << 10;

/// Bytes from one packed row to the next: an odd number of cache lines, so that 16 rows of a width that is a power of
/// two do not fall into one set of the cache.
std::int64_t packed_stride(const CpuPackedLinear& weight) {
  const std::int64_t lines = (weight.steps() * weight.kernel().x_step_bytes + 63) / 64;
  return (lines | 1) * 64;
}

void pack_row(const CpuPackedLinear& weight, const float* x, std::byte* packed) {
  const MatmulKernel& kernel = weight.kernel();
  for (const CpuPackedLinear::Run& run : weight.runs()) {
    kernel.pack(x + run.begin, run.count, packed + run.step * kernel.x_step_bytes);
  }
}

}  // namespace

const MatmulKernel& matmul_kernel(Isa isa, DType dtype) {
  const bool bf16 = dtype == DType::kBF16;
  switch (isa) {
    case Isa::kScalar:
      return bf16 ? kMatmulScalarBf16 : kMatmulScalarF32;
    case Isa::kAvx2:
      return bf16 ? kMatmulAvx2Bf16 : kMatmulAvx2F32;
    case Isa::kAvx512:
      return bf16 ? kMatmulAvx512Bf16Widened : kMatmulAvx512F32;
    case Isa::kAvx512Bf16:
      return bf16 ? kMatmulAvx512Bf16 : kMatmulAvx512F32;
  }
  return kMatmulScalarF32;
}

void MatmulScratch::reserve(const CpuPackedLinear& weight) {
  const auto needed = static_cast<std::size_t>(kBlockRows * packed_stride(weight));
  if (needed > rows_.bytes()) {
    rows_ = AlignedArray(needed);
  }
}

void matmul(const CpuPackedLinear& weight, ConstRows x, Rows y, MatmulScratch& scratch, ThreadPool& pool) {
  check(x.rows == y.rows && x.cols == weight.in_features() && y.cols == weight.out_features(),
        "matmul: the shapes of x, the weight and y agree");
  const std::int64_t stride = packed_stride(weight);
  check(scratch.bytes() >= static_cast<std::size_t>(kBlockRows * stride), "matmul: the scratch was shown this weight");
  const std::int64_t panels = weight.panel_count();
  const std::int64_t threads =
      std::clamp<std::int64_t>(panels * weight.panel_bytes() / kBytesPerThread, 1, pool.size());
  for (std::int64_t first = 0; first < x.rows; first += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, x.rows - first);
    for (std::int64_t r = 0; r < rows; ++r) {
      pack_row(weight, x.row(first + r), scratch.data() + r * stride);
    }
    const MatmulJob job = {.panels = weight.panels(),
                           .panel_bytes = weight.panel_bytes(),
                           .outputs = weight.out_features(),
                           .slice_steps = weight.slice_steps().data(),
                           .slices = static_cast<std::int64_t>(weight.slice_steps().size()),
                           .x = scratch.data(),
                           .x_stride = stride,
                           .rows = rows,
                           .y = y.row(first),
                           .y_stride = y.stride};
    const auto run = weight.kernel().run;
    if (threads == 1) {
      run(job, 0, panels);
      continue;
    }
    pool.run([&](std::int64_t thread) {
      if (thread < threads) {
        run(job, panels * thread / threads, panels * (thread + 1) / threads);
      }
    });
  }
}

}  // namespace specdec
