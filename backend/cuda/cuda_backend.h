#pragma once

#include <memory>

#include "backend/backend.h"

namespace specdec {

/// Which GPU a rank gets, and how it computes on it.
struct CudaOptions {
  int local_rank = 0;   ///< of this process among those of its host: which device it gets
  int local_ranks = 1;  ///< ranks of this host
  bool share = false;   ///< more ranks than devices take them in turn
  /// Products with bf16 weights in the order of the CPU's AVX-512 kernels, with their bits, in place of the tensor cores' order: slow, for
  /// comparison.
  bool cpu_order = false;
  bool graphs = true;  ///< passes that come again are replayed as CUDA graphs, in place of a launch for every kernel
  /// Kernels start while the one before them ends, on GPUs that can (compute capability 9.0 and later).
  bool overlap = true;
};

/// A backend on one GPU. Throws kBadInput where this program was built without CUDA (docs/gpu.md), where there is no GPU or no
/// driver, and for more ranks of a host than it has devices unless `share` allows it.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace specdec
