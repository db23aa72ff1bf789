#pragma once

#include <string>

namespace specdec {

/// Name and version of the MPI library that is linked, one line. May be called before MpiSession exists.
std::string mpi_library_version();

}  // namespace specdec
