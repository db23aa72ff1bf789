#pragma once

#include "parallel/communicator.h"

namespace specdec {

/// Cores that the ranks of `group`, all on one host, may run on together: two ranks bound to the same core count one.
/// Collective.
int cores_of(Communicator& group);

/// How many cores of its host this rank of `host` has to itself, each core that it may run on being shared evenly by those who may; at
/// least 1. Collective over the ranks of one host.
int own_share_of_cores(Communicator& host);

/// SPECDEC_PIN: auto (the default) or none. Throws kBadInput for anything else.
bool pinning_wanted();

/// Where the ranks of `host`, all of one host, have fewer cores than they are, and whoever started them left all cores to each: binds the
/// calling thread to one core, dealt out in turn, if that is `wanted`. Ranks of a step wait for each other, so five on one core and three on the other, as a
/// scheduler has them now and then, cost a tenth of a loop (docs/benchmarking.md). Threads that are there already stay free, those that the
/// caller starts later are bound with it. Collective.
void deal_out_cores(Communicator& host, bool wanted);

}  // namespace specdec
