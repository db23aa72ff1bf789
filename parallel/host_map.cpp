#include "parallel/host_map.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <set>

namespace specdec {

int common_run(std::span<const int> host) {
  const auto whole = [&](std::size_t run) {
    for (std::size_t begin = 0; begin < host.size(); begin += run) {
      const auto ranks = host.subspan(begin, std::min(run, host.size() - begin));
      if (std::ranges::any_of(ranks, [&](int h) { return h != ranks[0]; })) {
        return false;
      }
    }
    return true;
  };
  std::size_t run = std::bit_ceil(host.size());
  while (!whole(run)) {
    run /= 2;
  }
  return static_cast<int>(run);
}

int count_hosts(std::span<const int> host) { return static_cast<int>(std::set<int>(host.begin(), host.end()).size()); }

LocalRank local_rank(std::span<const std::string> hosts, int rank) {
  const std::string& own = hosts[rank];
  return {.rank = static_cast<int>(std::ranges::count(hosts.first(rank), own)),
          .ranks = static_cast<int>(std::ranges::count(hosts, own))};
}

std::string_view choose_transport(std::span<const int> host, int most_sharing) {
  const auto ranks = static_cast<int>(host.size());
  const int run = common_run(host);
  if (ranks == 1) {
    return "self";
  }
  if (run >= ranks && ranks <= most_sharing) {
    return "shm";
  }
  return run > 1 ? "hier" : "mpi";
}

}  // namespace specdec
