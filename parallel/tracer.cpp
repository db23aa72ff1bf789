#include "parallel/tracer.h"

#include <algorithm>
#include <charconv>

namespace specdec {

void range_name(const TraceKind& kind, std::optional<std::int64_t> value, std::span<char> out) {
  constexpr std::size_t kLongestNumber = 20;
  const std::size_t room = std::min(out.size(), kLongestRangeName) - kLongestNumber - 1;
  char* end = std::copy_n(kind.name.begin(), std::min(kind.name.size(), room), out.data());
  if (kind.numbered && value) {
    *end++ = ' ';
    end = std::to_chars(end, end + kLongestNumber, *value).ptr;
  }
  std::fill(end, out.data() + out.size(), '\0');
}

}  // namespace specdec
