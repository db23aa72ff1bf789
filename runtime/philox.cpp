#include "runtime/philox.h"

#include "backend/philox.h"

namespace specdec {

double uniform(const RandomKey& key) {
  const std::uint32_t kind =
      std::uint32_t{key.level} | std::uint32_t{key.branch} << 8 | static_cast<std::uint32_t>(key.purpose) << 16;
  const auto words = philox4x32({key.sequence, key.round, key.position, kind},
                                {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  return uniform_of(words[0], words[1]);
}

}  // namespace specdec
