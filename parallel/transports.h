#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "backend/cuda/cuda_backend.h"
#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// What a transport has to know beside who its ranks are.
struct TransportOptions {
  std::string_view place = "parallel.transport";  ///< where its name was written: errors begin with it
  CudaOptions gpu;  ///< of those on a device: which GPU a rank has, as its backend is told
};

/// All that a user can name, in configs and on command lines.
inline constexpr std::array<std::string_view, 9> kTransports = {"auto",     "self", "shm",       "hier", "mpi",
                                                                "mpi-fast", "nccl", "nccl-fast", "ipc"};

/// Whether a transport of that name sums on the ranks' GPUs (Communicator::on_device), with more than one rank.
bool is_on_device(std::string_view transport);

/// The transport that `name`, one of kTransports, asks for, over the ranks of the MPI communicator that `handle` (MPI_Comm_c2f) names; "auto" is in
/// host_map.h. Throws AgreedError (kBadInput) for any other name and for
/// one that does not suit where the ranks are or how this program was built; what goes wrong on one rank alone, a GPU's library above all, that rank throws. Collective over the communicator. `progress` must outlive it.
std::unique_ptr<Communicator> make_communicator(std::string_view name, int handle, Progress& progress,
                                                const TransportOptions& options);

}  // namespace specdec
