#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/packed_cache.h"
#include "backend/cuda/cuda_backend.h"

namespace specdec {

struct BackendOptions {
  std::string name = "cpu";  ///< "cpu", "reference" or "cuda"
  /// Of "cpu": the weakest of all ranks of the job, so that every rank's logits have the same bits.
  Isa isa = detect_isa();
  int threads = 1;   ///< of "cpu": compute threads, the calling one included
  bool pin = false;  ///< of "cpu": ThreadPool::Pin
  /// Of "cpu": where packed weights are kept, null for nowhere; outlives the backend.
  PackedCache* packed_cache = nullptr;
  CudaOptions cuda;  ///< of "cuda"
};

/// Throws kBadInput for a name that does not exist, an instruction set that this CPU lacks, a number of threads that cannot be started,
/// and as make_cuda_backend() does.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

}  // namespace specdec
