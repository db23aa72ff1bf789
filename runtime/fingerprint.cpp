#include "runtime/fingerprint.h"

#include <algorithm>
#include <cstring>

namespace specdec {

void RunningHash::add(std::span<const std::byte> bytes) {
  add(bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), taken);
    add(word);
    bytes = bytes.subspan(taken);
  }
}

}  // namespace specdec
