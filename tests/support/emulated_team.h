#pragma once

#if defined(__SANITIZE_THREAD__)
#include "tests/support/team_of_threads.h"
#else
#include "tests/support/team_of_fibers.h"
#endif

/// The threads of an emulated block. As threads of the host the thread sanitizer sees them, and a barrier that is missing; everywhere else they take turns on
/// one thread of the host, which is many times faster.
namespace specdec {

#if defined(__SANITIZE_THREAD__)
using EmulatedTeam = TeamOfThreads;
#else
using EmulatedTeam = TeamOfFibers;
#endif

}  // namespace specdec
