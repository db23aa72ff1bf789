#include "parallel/mpi_version.h"

#include <mpi.h>

#include <array>

namespace specdec {

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data());
  // Open MPI goes on with the build's package, ident and date.
  return all.substr(0, all.find_first_of(",\n"));
}

}  // namespace specdec
