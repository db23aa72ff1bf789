#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace specdec {

/// Bytes of the largest cache of the first core that this process may run on, as the kernel tells them; nothing where it does not. (glibc's
/// sysconf counts some of AMD's once for each group of cores of the whole CPU.)
std::optional<std::int64_t> last_level_cache_bytes();

/// The same of its second-level cache.
std::optional<std::int64_t> second_level_cache_bytes();

/// Of what the kernel writes into cache/index<N>/size, "32768K"; nothing for anything else.
std::optional<std::int64_t> parse_cache_size(std::string_view text);

}  // namespace specdec
