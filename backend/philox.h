#pragma once

#include <array>
#include <cstdint>

namespace specdec {

/// The four words of a counter, in place one round further; `key` is the round's (Philox4x32, Salmon et al. 2011).
constexpr void philox_round(std::uint32_t& x, std::uint32_t& y, std::uint32_t& z, std::uint32_t& w,
                            std::array<std::uint32_t, 2> key) {
  const std::uint64_t a = std::uint64_t{0xD2511F53U} * x;
  const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * z;
  x = static_cast<std::uint32_t>(b >> 32) ^ y ^ key[0];
  y = static_cast<std::uint32_t>(b);
  z = static_cast<std::uint32_t>(a >> 32) ^ w ^ key[1];
  w = static_cast<std::uint32_t>(a);
}

constexpr std::array<std::uint32_t, 2> next_philox_key(std::array<std::uint32_t, 2> key) {
  return {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
}
inline constexpr int kPhiloxRounds = 10;

/// Philox4x32-10, as in Random123: random words by key and counter, never by call order.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round, key = next_philox_key(key)) {
    philox_round(counter[0], counter[1], counter[2], counter[3], key);
  }
  return counter;
}

/// Uniform in [0, 1) from two words: a multiple of 2^-53.
constexpr double uniform_of(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 21) ^ (low >> 11)) * 0x1p-53;
}

}  // namespace specdec
