#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/backend.h"

namespace specdec {

/// What multiplies with weights of bf16 and fp16; those of fp32 have the CPU's order in any case.
enum class CudaProducts : std::uint8_t {
  kTensor,  ///< tensor cores; a row's bits depend on neither the other rows nor the number of ranks
  kCublas,  ///< cuBLAS, whose order changes with the number of rows and with that of ranks
  kVector,  ///< vector units for 1 to 3 rows and tensor cores for more, so that a row's bits depend on how many there are
  kCpuOrder,  ///< bf16 in the order of the CPU's AVX-512 kernels, with their bits: slow, for comparison
};

/// As configurations and reports have it: "tensor", "cublas", "vector", "cpu_order".
constexpr std::string_view name_of(CudaProducts products) {
  constexpr std::string_view kNames[] = {"tensor", "cublas", "vector", "cpu_order"};
  return kNames[static_cast<std::size_t>(products)];
}
/// The one with this name_of().
constexpr CudaProducts cuda_products_named(std::string_view name) {
  for (const CudaProducts products : {CudaProducts::kCublas, CudaProducts::kVector, CudaProducts::kCpuOrder}) {
    if (name == name_of(products)) {
      return products;
    }
  }
  return CudaProducts::kTensor;
}
/// Whether greedy speculative text must equal autoregressive text: a row's bits are its own.
constexpr bool row_invariant(CudaProducts products) {
  return products == CudaProducts::kTensor || products == CudaProducts::kCpuOrder;
}

/// Which GPU a rank gets, and how it computes on it.
struct CudaOptions {
  int local_rank = 0;   ///< of this process among those of its host: which device it gets
  int local_ranks = 1;  ///< ranks of this host
  bool share = false;   ///< more ranks than devices take them in turn
  CudaProducts products = CudaProducts::kTensor;
  bool graphs = true;  ///< passes that come again are replayed as CUDA graphs, in place of a launch for every kernel
  /// Products start while the kernel before them ends, on GPUs that can (compute capability 9.0 and later).
  bool overlap = true;
  /// Products with gates have them act at once, where `products` are tensor cores'; off, a kernel of its own does.
  bool fuse = true;
  /// Attention over more blocks of 64 keys than this is split among blocks of threads; where no more are seen, one of them attends for a row's head. Unless set, what
  /// the width of a head says.
  std::optional<std::int64_t> key_blocks_together;
  /// At most so many bytes of weights are asked for by the product before them (Backend::matmul_before). Reasoned, not measured: what a memory of 3 to 5 TB/s
  /// reads while a few ranks add up a few rows, and less than half of the second-level cache of any GPU for servers.
  std::int64_t prefetch_bytes = std::int64_t{16} << 20;
};

/// A backend on one GPU. Throws kBadInput where this program was built without CUDA (docs/gpu.md), where there is no GPU or no
/// driver, and for more ranks of a host than it has devices unless `share` allows it.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace specdec
