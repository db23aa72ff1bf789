#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/cuda/cuda_backend.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// How NCCL's ranks sum.
enum class NcclReduction : std::uint8_t {
  kTree,     ///< transport `nccl`: NCCL gathers, our kernel adds: the bits of tree_sum
  kLibrary,  ///< transport `nccl-fast`: ncclAllReduce, in whatever order the library likes
};

/// Ranks with a GPU each, whose payloads travel by NCCL: a communicator on the device (communicator.h). `host` has the same ranks; it carries the
/// bootstrap and every small message from host memory. One rank needs no NCCL: `host` itself comes back.
///
/// Nothing in it blocks: the library is started and asked without blocking, under the job's watchdog, and on an error of its own it is aborted, for at
/// most a second, since an abort can hang too, before the error is thrown. The usual payloads have run once when this returns, so that their kernels and
/// connections are there before a CUDA graph is captured; scratch for `kTree` has a fixed size, and larger payloads go through it in pieces.
///
/// Throws AgreedError (kBadInput), naming `place`, where there is no GPU for a rank and, on every rank, in a program built without NCCL (without_nccl.cpp);
/// kBadInput on a rank whose NCCL does not start. Collective over `host`. `progress` must outlive it.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, NcclReduction reduction,
                                                     const CudaOptions& gpu, Progress& progress,
                                                     std::string_view place);

}  // namespace specdec
