#include "backend/cpu/last_level_cache.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "backend/cpu/thread_pool.h"

namespace specdec {

std::optional<std::int64_t> parse_cache_size(std::string_view text) {
  std::int64_t kilobytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), kilobytes);
  if (error != std::errc() || kilobytes <= 0 || std::string_view(end, text.data() + text.size()) != "K") {
    return std::nullopt;
  }
  return kilobytes << 10;
}

std::optional<std::int64_t> last_level_cache_bytes() {
  const std::vector<int> cores = own_cores();
  std::optional<std::int64_t> largest;
  for (int index = 0; !cores.empty(); ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cores.front()) + "/cache/index" +
                       std::to_string(index) + "/size");
    std::string text;
    if (!(file >> text)) break;
    largest = std::max(largest, parse_cache_size(text));
  }
  return largest;
}

}  // namespace specdec
