#pragma once

#include <string>

namespace specdec {

/// The text of a control variable of the MPI library (MPI_T), from wherever it was set: mpirun's --mca, the environment or a file. Empty
/// when it is not set, or unknown to this library. After MPI_Init.
std::string mpi_variable(const char* name);

}  // namespace specdec
