#pragma once

#include <mpi.h>

#include <string>

#include "backend/error.h"

namespace specdec {

/// Throws kPeerFailed when an MPI call that returns errors did not succeed.
inline void mpi_check(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw Error(ErrorKind::kPeerFailed, std::string(call) + ": " + std::string(text, length));
  }
}

}  // namespace specdec
