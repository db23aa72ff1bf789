#include "parallel/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include "parallel/mpi_check.h"
#include "parallel/mpi_communicator.h"
#include "parallel/self_communicator.h"

namespace specdec {
namespace {

std::unique_ptr<Communicator> make_communicator(std::string_view transport, int size, int handle, Progress& progress) {
  const bool alone = size == 1;
  if (transport == "self" || (transport == "auto" && alone)) {
    if (!alone) {
      throw_bad_input("parallel.transport: self with " + std::to_string(size) +
                      " ranks, expected auto, mpi or mpi-fast (self is for one rank)");
    }
    return std::make_unique<SelfCommunicator>(progress);
  }
  if (transport == "mpi" || transport == "auto") {
    return std::make_unique<MpiCommunicator>(handle, MpiReduction::kTree, progress);
  }
  if (transport == "mpi-fast") {
    return std::make_unique<MpiCommunicator>(handle, MpiReduction::kLibrary, progress);
  }
  throw_bad_input("parallel.transport: found " + std::string(transport) + ", expected auto, self, mpi or mpi-fast");
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv, std::string program) : program_(std::move(program)) {
  int provided = 0;
  mpi_check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  host_ = name;
}

MpiSession::~MpiSession() {
  progress_.leave();
  MPI_Finalize();
}

std::unique_ptr<Communicator> MpiSession::world(std::string_view transport) {
  return make_communicator(transport, size_, MPI_Comm_c2f(MPI_COMM_WORLD), progress_);
}

std::unique_ptr<Communicator> MpiSession::split(std::string_view transport, int color) {
  MPI_Comm part = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, rank_, &part), "MPI_Comm_split");
  if (part == MPI_COMM_NULL) {
    return nullptr;
  }
  int size = 0;
  MPI_Comm_size(part, &size);
  std::unique_ptr<Communicator> communicator = make_communicator(transport, size, MPI_Comm_c2f(part), progress_);
  MPI_Comm_free(&part);
  return communicator;
}

void MpiSession::fail(ErrorKind kind, const std::string& message) {
  const std::string line = program_ + ": error: " + message + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  MPI_Abort(MPI_COMM_WORLD, exit_code(kind));
  _exit(exit_code(kind));
}

}  // namespace specdec
