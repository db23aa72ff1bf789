#pragma once

#include <memory>
#include <string_view>

#include "parallel/communicator.h"
#include "parallel/progress.h"

namespace specdec {

/// The transport that `name` asks for, over the ranks of the MPI communicator that `handle` (MPI_Comm_c2f) names: "auto"
/// (host_map.h), "self", "shm", "hier", "mpi" or "mpi-fast". Throws kBadInput, on every rank, for any other name and for
/// one that does not suit where the ranks are, `place` saying where it was written. Collective over the communicator. `progress` must outlive it.
std::unique_ptr<Communicator> make_communicator(std::string_view name, int handle, Progress& progress,
                                                std::string_view place);

}  // namespace specdec
