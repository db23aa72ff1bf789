#pragma once

#include <span>
#include <string>
#include <string_view>

namespace specdec {

/// `host[r]`: the host of rank r of a group, as any number. Pure arithmetic on it: where a group's ranks are.

/// The largest power of two such that every run of so many ranks [0, n), [n, 2n), ... is on one host; not less than the
/// number of ranks when all are on one.
int common_run(std::span<const int> host);
int count_hosts(std::span<const int> host);

/// A rank among those of its host.
struct LocalRank {
  int rank = 0;
  int ranks = 1;
};
/// Of rank `rank`, where `hosts` names the host of every rank.
LocalRank local_rank(std::span<const std::string> hosts, int rank);

/// The transport that `auto` stands for: "self" for one rank, "shm" on one host for at most `most_sharing` ranks, "hier" where runs of
/// two ranks or more are on one host each, else "mpi".
std::string_view choose_transport(std::span<const int> host, int most_sharing);

}  // namespace specdec
