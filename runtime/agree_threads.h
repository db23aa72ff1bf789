#pragma once

#include <optional>
#include <string>

#include "parallel/communicator.h"

namespace specdec {

/// Compute threads of every rank, and what to tell the user about them, if anything.
struct AgreedThreads {
  int threads = 1;
  std::string note;
};

/// How many compute threads each rank of `group` starts, the same number on all: what was asked for, or, with nothing asked for, as many as
/// the rank that has the fewest cores has. `cores`: of this rank alone (own_share_of_cores). The note says that more were asked for than
/// there are cores for, `key` being where. Collective.
AgreedThreads agree_on_threads(Communicator& group, std::optional<int> asked, int cores, std::string_view key);

}  // namespace specdec
