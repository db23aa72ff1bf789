#include "parallel/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

#include "parallel/mpi_check.h"
#include "parallel/peer.h"
#include "parallel/transports.h"

namespace specdec {
namespace {

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
  MPI_Comm host = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int on_host = 0;
  MPI_Comm_size(host, &on_host);
  MPI_Comm_free(&host);
  const int alone = on_host == size ? 1 : 0;
  int all_alone = 0;
  mpi_check(MPI_Allreduce(&alone, &all_alone, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  return all_alone == 1;
}

/// The sockets of the watchdogs: on rank 0 to every worker, on a worker to rank 0.
std::vector<Peer> contact_peers(int rank, int size) {
  std::vector<Peer> peers;
  if (size == 1) {
    return peers;
  }
  PeerEndpoint endpoint;
  const auto share_endpoint = [&] {
    mpi_check(MPI_Bcast(&endpoint, sizeof endpoint, MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
  };
  const bool one_host = on_one_host(size);
  if (rank == 0) {
    PeerListener listener(one_host);
    endpoint = listener.endpoint();
    share_endpoint();
    return listener.accept(size - 1);
  }
  share_endpoint();
  peers.push_back(connect_to(endpoint, rank));
  return peers;
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv, std::string program) : program_(std::move(program)) {
  // Open MPI sends up to 4 KB at once over shared memory and shakes hands for more: that is between one row and five of a small
  // model, and costs a switch of ranks each time. Whoever has set it knows better.
  setenv("OMPI_MCA_btl_vader_eager_limit", "32768", 0);
  int provided = 0;
  mpi_check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  hosts_ = host_names(size_);
  watchdog_ = std::make_unique<Watchdog>(signals_, progress_, program_, rank_, hosts_, contact_peers(rank_, size_));
}

MpiSession::~MpiSession() {
  progress_.leave();
  MPI_Finalize();  // still watched: a rank that never comes here would keep the others for ever
}

int MpiSession::world_handle() const { return MPI_Comm_c2f(MPI_COMM_WORLD); }

/// Ranks of one host become neighbours, whatever the mapping of ranks to hosts was: hosts in the order of their lowest rank, so that
/// rank 0 stays the first.
std::unique_ptr<Communicator> MpiSession::world(std::string_view transport) { return split(transport, 0); }

std::unique_ptr<Communicator> MpiSession::split(std::string_view transport, int color) {
  const InCollective guard(progress_);
  MPI_Comm part = MPI_COMM_NULL;
  const auto host = std::ranges::find(hosts_, hosts_[rank_]) - hosts_.begin();
  const int key = static_cast<int>(host) * size_ + rank_;
  mpi_check(MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  if (part == MPI_COMM_NULL) {
    return nullptr;
  }
  std::unique_ptr<Communicator> communicator = make_communicator(transport, MPI_Comm_c2f(part), progress_);
  MPI_Comm_free(&part);
  return communicator;
}

}  // namespace specdec
