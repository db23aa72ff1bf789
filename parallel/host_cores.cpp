#include "parallel/host_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/error.h"

namespace specdec {
namespace {

constexpr const char* kPinVariable = "SPECDEC_PIN";

/// The cores that each rank of `group` may run on.
std::vector<cpu_set_t> all_cores(Communicator& group) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  std::vector<cpu_set_t> all(group.size());
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
  return all;
}

/// The `n`-th core of `cores`.
int nth_core(const cpu_set_t& cores, int n) {
  int core = 0;
  for (; !CPU_ISSET(core, &cores) || n > 0; ++core) {
    n -= CPU_ISSET(core, &cores) ? 1 : 0;
  }
  return core;
}

}  // namespace

int cores_of(Communicator& group) {
  cpu_set_t together;
  CPU_ZERO(&together);
  for (const cpu_set_t& cores : all_cores(group)) {
    CPU_OR(&together, &together, &cores);
  }
  return CPU_COUNT(&together);
}

int own_share_of_cores(Communicator& host) {
  const std::vector<cpu_set_t> all = all_cores(host);
  double share = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all[static_cast<std::size_t>(host.rank())])) {
      const auto sharers = std::ranges::count_if(all, [&](const cpu_set_t& cores) { return CPU_ISSET(core, &cores); });
      share += 1.0 / static_cast<double>(sharers);
    }
  }
  constexpr double kRounding = 1e-6;  // of sums such as 1/3 + 1/3 + 1/3
  return std::max(1, static_cast<int>(share + kRounding));
}

bool pinning_wanted() {
  const char* const text = std::getenv(kPinVariable);
  const std::string_view wanted = text == nullptr || *text == '\0' ? "auto" : text;
  if (wanted != "auto" && wanted != "none") {
    throw_bad_input(std::string(kPinVariable) + ": found '" + std::string(wanted) + "', expected auto or none");
  }
  return wanted == "auto";
}

void deal_out_cores(Communicator& host, bool wanted) {
  const std::vector<cpu_set_t> all = all_cores(host);
  const cpu_set_t& cores = all.front();
  const int count = CPU_COUNT(&cores);
  const bool bound = std::ranges::any_of(all, [&](const cpu_set_t& other) { return !CPU_EQUAL(&other, &cores); });
  if (!wanted || bound || count == 0 || host.size() <= count) {
    return;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(nth_core(cores, host.rank() % count), &own);
  sched_setaffinity(0, sizeof own, &own);  // where it is not allowed the scheduler goes on by itself
}

}  // namespace specdec
