#include "runtime/philox.h"

namespace specdec {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

double uniform(const RandomKey& key) {
  const std::uint32_t kind =
      std::uint32_t{key.level} | std::uint32_t{key.branch} << 8 | static_cast<std::uint32_t>(key.purpose) << 16;
  const auto words = philox4x32({key.sequence, key.round, key.position, kind},
                                {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 21) ^ (words[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace specdec
