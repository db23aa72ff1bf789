#include "backend/cpu/cache_sizes.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "backend/cpu/thread_pool.h"

namespace specdec {

namespace {

/// Calls see(level, bytes) for each cache of the first core that this process may run on.
template <typename See>
void for_caches(See see) {
  const std::vector<int> cores = own_cores();
  for (int index = 0; !cores.empty(); ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu" + std::to_string(cores.front()) + "/cache/index" + std::to_string(index) + "/";
    std::ifstream size_file(folder + "size");
    std::ifstream level_file(folder + "level");
    std::string size;
    int level = 0;
    if (!(size_file >> size) || !(level_file >> level)) break;
    if (const std::optional<std::int64_t> bytes = parse_cache_size(size)) see(level, *bytes);
  }
}

}  // namespace

std::optional<std::int64_t> parse_cache_size(std::string_view text) {
  std::int64_t kilobytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), kilobytes);
  if (error != std::errc() || kilobytes <= 0 || std::string_view(end, text.data() + text.size()) != "K") {
    return std::nullopt;
  }
  return kilobytes << 10;
}

std::optional<std::int64_t> last_level_cache_bytes() {
  std::optional<std::int64_t> largest;
  for_caches([&](int /*level*/, std::int64_t bytes) { largest = std::max(largest, std::optional(bytes)); });
  return largest;
}

std::optional<std::int64_t> second_level_cache_bytes() {
  std::optional<std::int64_t> found;
  for_caches([&](int level, std::int64_t bytes) {
    if (level == 2) found = bytes;
  });
  return found;
}

}  // namespace specdec
