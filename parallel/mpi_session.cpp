#include "parallel/mpi_session.h"

#include <arpa/inet.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/agree.h"
#include "parallel/host_cores.h"
#include "parallel/mpi_check.h"
#include "parallel/mpi_communicator.h"
#include "parallel/mpi_variable.h"
#include "parallel/network_interface.h"
#include "parallel/peer.h"
#include "parallel/scoped_comm.h"
#include "parallel/self_communicator.h"

namespace specdec {
namespace {

constexpr const char* kInterfaceVariable = "SPECDEC_INTERFACE";

/// Host of every rank, the same list everywhere.
std::vector<std::string> host_names(int size) {
  constexpr int kWidth = 256;
  std::array<char, kWidth> mine{};
  gethostname(mine.data(), mine.size() - 1);
  std::vector<char> all(std::size_t{kWidth} * size);
  mpi_check(MPI_Allgather(mine.data(), kWidth, MPI_CHAR, all.data(), kWidth, MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather");
  std::vector<std::string> names;
  names.reserve(size);
  for (int r = 0; r < size; ++r) {
    names.emplace_back(all.data() + std::size_t{kWidth} * r);
  }
  return names;
}

bool on_one_host(int size) {
  ScopedComm host;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, host.out()),
            "MPI_Comm_split_type");
  int on_host = 0;
  MPI_Comm_size(host.get(), &on_host);
  const int alone = on_host == size ? 1 : 0;
  int all_alone = 0;
  mpi_check(MPI_Allreduce(&alone, &all_alone, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  return all_alone == 1;
}

/// The address that the watchdog's sockets of this host are bound to, if any. What stays on one host needs no interface.
std::optional<std::uint32_t> control_address(bool one_host, const std::string& host) {
  if (one_host) {
    return htonl(INADDR_LOOPBACK);
  }
  const char* const own = std::getenv(kInterfaceVariable);
  const bool named = own != nullptr && *own != '\0';
  return select_address(interface_addresses(), named ? own : mpi_variable("btl_tcp_if_include"),
                        std::string(named ? kInterfaceVariable : "btl_tcp_if_include") + " on " + host);
}

/// Open MPI's TCP keeps to the interface that our sockets are told to keep to, unless it was told another. A name that this host does
/// not have is left for watch() to refuse: MPI must run for the ranks to agree on that.
void pass_interface_on() {
  const char* const own = std::getenv(kInterfaceVariable);
  try {
    if (own != nullptr && select_address(interface_addresses(), own, kInterfaceVariable)) {
      setenv("OMPI_MCA_btl_tcp_if_include", own, 0);
    }
  } catch (const Error&) {
  }
}

/// Of those that nothing else reads before a mistake can be agreed on.
void check_variables() {
  StartGuard::limit();
  pinning_wanted();
}

/// A variable that makes no sense is left for watch() too.
std::chrono::milliseconds start_limit() {
  try {
    return StartGuard::limit();
  } catch (const Error&) {
    return std::chrono::minutes(1);
  }
}

/// The sockets of the watchdogs: on rank 0 to every worker, on a worker to rank 0.
std::vector<Peer> contact_peers(int rank, const std::vector<std::string>& hosts, Progress& progress) {
  const int size = static_cast<int>(hosts.size());
  std::vector<Peer> peers;
  if (size == 1) {
    check_variables();
    return peers;
  }
  PeerEndpoint endpoint;
  const auto share_endpoint = [&] {
    mpi_check(MPI_Bcast(&endpoint, sizeof endpoint, MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
  };
  const bool one_host = on_one_host(size);
  MpiCommunicator world(MPI_Comm_c2f(MPI_COMM_WORLD), MpiReduction::kTree, progress);
  const auto address = agree(world, [&] {
    check_variables();
    return control_address(one_host, hosts[rank]);
  });
  if (rank == 0) {
    PeerListener listener(address);
    endpoint = listener.endpoint();
    share_endpoint();
    return listener.accept(size - 1);
  }
  share_endpoint();
  peers.push_back(connect_to(endpoint, rank, address));
  return peers;
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv, std::string program) : program_(std::move(program)) {
  // Open MPI sends up to 4 KB at once over shared memory and shakes hands for more: that is between one row and five of a small
  // model, and costs a switch of ranks each time. Whoever has set it knows better.
  setenv("OMPI_MCA_btl_vader_eager_limit", "32768", 0);
  pass_interface_on();
  guard_.emplace(program_, start_limit());
  int provided = 0;
  mpi_check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  hosts_ = host_names(size_);
}

void MpiSession::watch() {
  watchdog_ =
      std::make_unique<Watchdog>(signals_, progress_, program_, rank_, hosts_, contact_peers(rank_, hosts_, progress_));
  guard_.reset();
  if (size_ > 1) {
    pin();
  } else {
    SelfCommunicator alone;
    cores_ = own_share_of_cores(alone);
  }
}

/// Once the watchdog's threads are there: they run wherever there is room.
void MpiSession::pin() {
  const InCollective guard(progress_);
  ScopedComm host;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, host.out()),
            "MPI_Comm_split_type");
  MpiCommunicator group(MPI_Comm_c2f(host.get()), MpiReduction::kTree, progress_);
  cores_ = own_share_of_cores(group);
  deal_out_cores(group, pinning_wanted());
}

MpiSession::~MpiSession() {
  progress_.leave();
  MPI_Finalize();  // still watched: a rank that never comes here would keep the others for ever
}

int MpiSession::world_handle() const { return MPI_Comm_c2f(MPI_COMM_WORLD); }

/// Ranks of one host become neighbours, whatever the mapping of ranks to hosts was: hosts in the order of their lowest rank, so that
/// rank 0 stays the first.
std::unique_ptr<Communicator> MpiSession::world(std::string_view transport, const TransportOptions& options) {
  return split(transport, 0, options);
}

std::unique_ptr<Communicator> MpiSession::split(std::string_view transport, int color,
                                                const TransportOptions& options) {
  const InCollective guard(progress_);
  ScopedComm part;
  const auto host = std::ranges::find(hosts_, hosts_[rank_]) - hosts_.begin();
  const int key = static_cast<int>(host) * size_ + rank_;
  mpi_check(MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, part.out()), "MPI_Comm_split");
  if (part.get() == MPI_COMM_NULL) {
    return nullptr;
  }
  TransportOptions here = options;
  here.gpu.local_rank = local_rank().rank;
  here.gpu.local_ranks = local_rank().ranks;
  return make_communicator(transport, MPI_Comm_c2f(part.get()), progress_, here);
}

}  // namespace specdec
