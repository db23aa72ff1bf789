#pragma once

#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace specdec {

/// Where a rank runs, for reports.
struct RankPlace {
  std::string host;
  std::string cpu;     ///< model, as /proc/cpuinfo says
  std::string kernel;  ///< "Linux 6.1.0"
  std::string cores;   ///< that it may run on: "0-3,8"
  int core_count = 0;
  int host_cores = 0;  ///< that are online
};

/// Of every rank of `group`, in order. Collective.
std::vector<RankPlace> rank_places(Communicator& group);

}  // namespace specdec
