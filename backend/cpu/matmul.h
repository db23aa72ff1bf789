#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "backend/cpu/aligned_array.h"
#include "backend/cpu/last_level_cache.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cpu/thread_pool.h"
#include "backend/tensor.h"

namespace specdec {

/// Where matmul keeps the rows of x in the form that its kernels read. Grows to the largest matrix it was shown, so
/// that a call allocates nothing; one per thread that calls matmul.
class MatmulScratch {
 public:
  /// Beside weights that are larger together than `cache_bytes` all of them are read from memory.
  explicit MatmulScratch(std::optional<std::int64_t> cache_bytes = last_level_cache_bytes())
      : cache_bytes_(cache_bytes) {}

  void reserve(const CpuPackedLinear& weight);
  std::byte* data() { return rows_.data(); }
  std::size_t bytes() const { return rows_.bytes(); }

  /// Panels of a matrix, by their place alone: it may be gone.
  struct Panels {
    const std::byte* data = nullptr;
    std::int64_t bytes = 0;  ///< of one
    std::int64_t count = 0;
  };
  /// Says that `weight` is multiplied with now, and returns what came after it the last time, nothing if that is not known. A pass goes through its
  /// matrices in the same order each time. (Backend::matmul_before tells the next one only where ranks meet, and none from one model to another.)
  Panels following(const CpuPackedLinear& weight);
  /// Whether what it was shown lies in memory when a pass comes to it. Where the size of the cache is not known it does not.
  bool from_memory() const { return cache_bytes_ && weight_bytes_ > *cache_bytes_; }

 private:
  AlignedArray rows_;
  std::optional<std::int64_t> cache_bytes_;
  std::int64_t weight_bytes_ = 0;
  std::unordered_map<const CpuPackedLinear*, Panels> following_;
  Panels* after_last_ = nullptr;
};

/// y = x * weight^T, as Backend::matmul says. x [rows, in_features], y [rows, out_features]. Reads each weight once for
/// up to 16 rows, and from cache for the further rows of a block of 64. Rows, threads and the place of an output in the
/// matrix change no bit of it. `scratch` must have been shown `weight`; subnormals must be flushed on the calling
/// thread.
void matmul(const CpuPackedLinear& weight, ConstRows x, Rows y, MatmulScratch& scratch, ThreadPool& pool);

}  // namespace specdec
