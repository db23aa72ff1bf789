#pragma once

#include <functional>

#include "parallel/communicator.h"
#include "parallel/shm_communicator.h"

namespace specdec::tests {

/// Runs body(communicator) on a thread a rank, over the shm transport: the sanitizers see both sides of every hand-over, and ranks that share
/// cores wait as they do in a job. Nothing in it may throw: the other ranks would wait for ever.
void run_over_shm(int ranks, const ShmOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace specdec::tests
