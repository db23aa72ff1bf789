#pragma once

#include <functional>

#include "parallel/mpi_session.h"

namespace specdec {

/// The body of every `main` of a parallel program, and the one place that catches errors. Returns what `body` returns
/// on this rank, or the exit code of the error that it threw (backend/error.h), after one line `PROGRAM: error:
/// MESSAGE` on stderr:
///  - an AgreedError was thrown by every rank: rank 0 prints it and all ranks leave in order;
///  - a Disagreement was thrown by this rank: all ranks are heard, then the job ends, naming the odd one;
///  - any other exception was perhaps thrown by this rank alone: the job ends at once, and the other ranks do not wait
///  for it.
/// A reader of the output that leaves does not end the job: SIGPIPE is ignored. Standard streams that are closed are opened on /dev/null:
/// MPI's sockets would get their numbers, and the text.
int run_program(int argc, char** argv, const std::function<int(MpiSession&)>& body);

/// The same for a program that never starts MPI.
int run_local_program(int argc, char** argv, const std::function<int()>& body);

}  // namespace specdec
