#pragma once

#include "parallel/communicator.h"

namespace specdec {

/// Throws AgreedError (kBadInput) on every rank unless all ranks of `group` read one clock and can share memory: one
/// running kernel, and in it one network and one time namespace. Collective.
void require_common_clock(Communicator& group);

}  // namespace specdec
