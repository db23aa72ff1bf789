#include "parallel/transports.h"

#include <mpi.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backend/error.h"
#include "parallel/agree.h"
#include "parallel/hier_communicator.h"
#include "parallel/host_cores.h"
#include "parallel/host_map.h"
#include "parallel/ipc_communicator.h"
#include "parallel/mpi_check.h"
#include "parallel/mpi_communicator.h"
#include "parallel/nccl_communicator.h"
#include "parallel/scoped_comm.h"
#include "parallel/self_communicator.h"
#include "parallel/shared_region.h"
#include "parallel/shm_communicator.h"

namespace specdec {
namespace {

/// For every rank the lowest rank of its host.
std::vector<int> hosts_of(MPI_Comm comm, int rank, int size) {
  ScopedComm host;
  mpi_check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, host.out()), "MPI_Comm_split_type");
  int first = rank;
  mpi_check(MPI_Bcast(&first, 1, MPI_INT, 0, host.get()), "MPI_Bcast");
  std::vector<int> hosts(size);
  mpi_check(MPI_Allgather(&first, 1, MPI_INT, hosts.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return hosts;
}

std::unique_ptr<Communicator> make_shm(MPI_Comm comm, Progress& progress) {
  MpiCommunicator bootstrap(MPI_Comm_c2f(comm), MpiReduction::kTree, progress);
  if (bootstrap.size() == 1) {
    return std::make_unique<SelfCommunicator>(progress);
  }
  const int cores = cores_of(bootstrap);
  auto region =
      std::make_shared<SharedRegion>(SharedRegion::across(bootstrap, ShmCommunicator::region_bytes(bootstrap.size())));
  return std::make_unique<ShmCommunicator>(std::move(region), bootstrap.rank(), bootstrap.size(), progress,
                                           ShmOptions{.cores = cores, .reduction = {}});
}

std::unique_ptr<Communicator> make_hier(MPI_Comm comm, int rank, int size, int run, Progress& progress) {
  ScopedComm local;
  ScopedComm leaders;
  const bool leads = rank % run == 0;
  mpi_check(MPI_Comm_split(comm, rank / run, rank, local.out()), "MPI_Comm_split");
  mpi_check(MPI_Comm_split(comm, leads ? 0 : MPI_UNDEFINED, rank, leaders.out()), "MPI_Comm_split");
  std::unique_ptr<Communicator> between;
  if (leads) {
    between = std::make_unique<MpiCommunicator>(MPI_Comm_c2f(leaders.get()), MpiReduction::kTree, progress);
  }
  return std::make_unique<HierCommunicator>(make_shm(local.get(), progress), std::move(between), rank, size, run,
                                            progress);
}

/// "PLACE: found NAME with ..., expected ...". Where the ranks are, every rank knows.
[[noreturn]] void reject(const std::string& found, const std::string& where, const std::string& expected) {
  throw AgreedError(ErrorKind::kBadInput, found + where + ", expected " + expected);
}

std::unique_ptr<Communicator> make_on_device(std::string_view name, std::unique_ptr<Communicator> host,
                                             Progress& progress, const TransportOptions& options) {
  if (name == "ipc") {
    return make_ipc_communicator(std::move(host), options.gpu, progress, options.place);
  }
  return make_nccl_communicator(std::move(host), name == "nccl" ? NcclReduction::kTree : NcclReduction::kLibrary,
                                options.gpu, progress, options.place);
}

/// "a, b or c" of all names.
std::string all_names() {
  std::string text;
  for (const std::string_view name : kTransports) {
    text += text.empty() ? "" : name == kTransports.back() ? " or " : ", ";
    text += name;
  }
  return text;
}

}  // namespace

bool is_on_device(std::string_view transport) {
  return transport == "nccl" || transport == "nccl-fast" || transport == "ipc";
}

std::unique_ptr<Communicator> make_communicator(std::string_view name, int handle, Progress& progress,
                                                const TransportOptions& options) {
  const InCollective guard(progress);
  const std::string found = std::string(options.place) + ": found " + std::string(name);
  const MPI_Comm comm = MPI_Comm_f2c(handle);
  int rank = 0;
  int size = 1;
  mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  const std::vector<int> hosts = hosts_of(comm, rank, size);
  const int run = common_run(hosts);
  const bool one_host = run >= size;
  if (is_on_device(name)) {
    if (name == "ipc" && !one_host) {
      reject(found, " with ranks on " + std::to_string(count_hosts(hosts)) + " hosts", "nccl (ipc is for one host)");
    }
    return make_on_device(name, make_communicator("auto", handle, progress, options), progress, options);
  }
  const std::string_view transport = name == "auto" ? choose_transport(hosts, ShmCommunicator::kMaxRanks) : name;
  if (transport == "self") {
    if (size > 1) {
      reject(found, " with " + std::to_string(size) + " ranks",
             "auto, shm, hier, mpi or mpi-fast (self is for one rank)");
    }
    return std::make_unique<SelfCommunicator>(progress);
  }
  if (transport == "shm") {
    if (!one_host) {
      reject(found, " with ranks on " + std::to_string(count_hosts(hosts)) + " hosts",
             "auto, hier, mpi or mpi-fast (shm is for one host)");
    }
    if (size > ShmCommunicator::kMaxRanks) {
      reject(found, " with " + std::to_string(size) + " ranks on a host",
             "auto, hier, mpi or mpi-fast (shm is for up to " + std::to_string(ShmCommunicator::kMaxRanks) + ")");
    }
    return make_shm(comm, progress);
  }
  if (transport == "hier") {
    if (size == 1) {
      return std::make_unique<SelfCommunicator>(progress);
    }
    if (run == 1) {
      reject(found, " where neighbouring ranks are on different hosts", "auto, mpi or mpi-fast");
    }
    // On one host the halves of the ranks stand for two hosts, so that the transport can be tried anywhere.
    return make_hier(comm, rank, size, std::min(one_host ? run / 2 : run, ShmCommunicator::kMaxRanks), progress);
  }
  if (transport == "mpi" || transport == "mpi-fast") {
    return std::make_unique<MpiCommunicator>(handle, transport == "mpi" ? MpiReduction::kTree : MpiReduction::kLibrary,
                                             progress);
  }
  reject(found, "", all_names());
}

}  // namespace specdec
