#include "runtime/agree_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

namespace specdec {

AgreedThreads agree_on_threads(Communicator& group, std::optional<int> asked, int cores, std::string_view key) {
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&cores, 1)), std::as_writable_bytes(std::span(all)), Stream{});
  const auto least = std::ranges::min_element(all);
  if (!asked) {
    return {.threads = *least, .note = {}};
  }
  AgreedThreads agreed{.threads = *asked, .note = {}};
  // A thread a rank is what ranks without cores of their own need, too.
  if (*asked > std::max(*least, 1)) {
    agreed.note = fmt::format(
        "{}: found {}, expected at most {}: rank {} has no more cores to itself, so its threads take turns (mpirun "
        "binds "
        "ranks to cores unless it is told --bind-to none)",
        key, *asked, *least, least - all.begin());
  }
  return agreed;
}

}  // namespace specdec
