#include "parallel/host_cores.h"

#include <sched.h>

#include <cstddef>
#include <span>
#include <vector>

namespace specdec {

int cores_of(Communicator& group) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  std::vector<cpu_set_t> all(group.size());
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
  cpu_set_t together;
  CPU_ZERO(&together);
  for (const cpu_set_t& cores : all) {
    CPU_OR(&together, &together, &cores);
  }
  return CPU_COUNT(&together);
}

}  // namespace specdec
