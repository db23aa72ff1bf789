#include "runtime/agree_isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "parallel/agree.h"

namespace specdec {

Isa agree_on_isa(Communicator& group, std::string_view asked, std::string_view key) {
  const Isa mine = agree(group, [&] {
    const Isa own = detect_isa();
    if (asked == "auto") {
      return own;
    }
    const std::optional<Isa> named = parse_isa(asked);
    if (!named || *named > own) {
      throw_bad_input(fmt::format("{}: found {}, expected auto or one that this machine has, at most {}", key, asked,
                                  name_of(own)));
    }
    return *named;
  });
  std::vector<Isa> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream{});
  return *std::min_element(all.begin(), all.end());
}

}  // namespace specdec
