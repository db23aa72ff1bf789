#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/dtype.h"
#include "backend/tensor.h"

namespace specdec {

/// Products by cuBLAS, as an alternative and a baseline: its order of additions is its own, and changes with the number of rows.
class CublasProduct {
 public:
  /// For the current device. Throws kBadInput where this program was built without cuBLAS.
  CublasProduct();
  ~CublasProduct();

  /// y = x w^T with fp32 sums, in `stream` (a cudaStream_t). weights [outputs, inputs] and x [y.rows, inputs] of `dtype` (bf16 or fp16),
  /// row-major without gaps; y [rows, outputs].
  void multiply(void* stream, DType dtype, const std::byte* weights, const std::byte* x, std::int64_t inputs, Rows y);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace specdec
