#pragma once

#include <memory>
#include <string_view>

#include "backend/cuda/cuda_backend.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// Ranks of one host with a GPU each, which write into each other's memory: the transport `ipc`, a communicator on the device (communicator.h). An
/// all-reduce is one kernel, in which every rank pushes its whole payload to every other and adds up what has come, in the tree
/// (backend/cuda/kernels/peer_sum_kernel.h): one step, made for the payloads of decoding. `host` has the same ranks; it carries the handles of the memory and every small
/// message from host memory. One rank needs none of it: `host` itself comes back.
///
/// A kernel that waits looks at a flag in host memory now and then; when an exception unwinds this rank, it is set, so that no kernel is left waiting for ranks
/// that have gone. Deadlines are the watchdog's, where the host waits.
///
/// Throws AgreedError (kBadInput), naming `place`, for too many ranks, where there is no GPU for a rank or one cannot reach another's memory, and in
/// a program built without CUDA (without_cuda.cpp). Collective over `host`, whose ranks are on one host. `progress` must outlive it.
std::unique_ptr<Communicator> make_ipc_communicator(std::unique_ptr<Communicator> host, const CudaOptions& gpu,
                                                    Progress& progress, std::string_view place);

}  // namespace specdec
