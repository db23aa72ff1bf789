#pragma once

#include "parallel/communicator.h"

namespace specdec {

/// Cores that the ranks of `group`, all on one host, may run on together: two ranks bound to the same core count one.
/// Collective.
int cores_of(Communicator& group);

}  // namespace specdec
