#pragma once

#include <cstddef>

#include "backend/cpu/aligned_array.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cpu/thread_pool.h"
#include "backend/tensor.h"

namespace specdec {

/// Where matmul keeps the rows of x in the form that its kernels read. Grows to the largest matrix it was shown, so
/// that a call allocates nothing; one per thread that calls matmul.
class MatmulScratch {
 public:
  void reserve(const CpuPackedLinear& weight);
  std::byte* data() { return rows_.data(); }
  std::size_t bytes() const { return rows_.bytes(); }

 private:
  AlignedArray rows_;
};

/// y = x * weight^T, as Backend::matmul says. x [rows, in_features], y [rows, out_features]. Reads each weight once for
/// up to 16 rows, and from cache for the further rows of a block of 64. Rows, threads and the place of an output in the
/// matrix change no bit of it. `scratch` must have been shown `weight`; subnormals must be flushed on the calling
/// thread.
void matmul(const CpuPackedLinear& weight, ConstRows x, Rows y, MatmulScratch& scratch, ThreadPool& pool);

}  // namespace specdec
