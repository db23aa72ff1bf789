#pragma once

#include <gtest/gtest.h>

#include "parallel/mpi_session.h"

/// The main of every test program under mpirun (cmake/SpecdecMpiTest.cmake). All ranks run the same cases in the same order.
namespace specdec::mpi_test {

/// The session of the running test program.
MpiSession& session();

}  // namespace specdec::mpi_test
