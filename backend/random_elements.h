#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backend/dtype.h"
#include "backend/philox.h"

namespace specdec {

/// The elements of a tensor that is made and not read (`weights: random`). Element i is a function of (seed, tensor, i) alone, so every
/// rank, shard and device makes the same tensor, and each only what it needs of it.
///
/// An element is mean + scale * n in fp32, rounded to bf16 as checkpoints are, with n one of the 65536 odd numbers -65535, -65533 ... 65535, all
/// equally likely. Each step is rounded by itself, so that all machines have the same bits. Eight neighbouring elements are the eight
/// halves of one block of Philox, the lower half of each word first.
struct RandomElements {
  std::uint64_t seed = 0;
  std::uint64_t tensor = 0;  ///< which one of the seed's
  std::int64_t first = 0;    ///< element 0 of this run of them is that of the tensor
  float mean = 0;
  float scale = 0;

  /// Elements that one block of Philox gives.
  static constexpr std::int64_t kBlock = 8;

  constexpr std::array<std::uint32_t, 4> counter(std::uint64_t block) const {
    return {low(block), high(block), low(tensor), high(tensor)};
  }
  constexpr std::array<std::uint32_t, 2> key() const { return {low(seed), high(seed)}; }
  constexpr std::array<std::uint32_t, 4> block(std::uint64_t number) const {
    return philox4x32(counter(number), key());
  }
  constexpr float value(std::uint32_t half) const {
    const auto number = static_cast<float>(static_cast<std::int32_t>(2 * half) - 65535);
    return bf16_to_float(float_to_bf16(mean + scale * number));
  }
  constexpr float operator[](std::int64_t i) const {
    const auto at = static_cast<std::uint64_t>(first + i);
    return value((block(at / kBlock)[at % kBlock / 2] >> (at % 2 * 16)) & 0xffffU);
  }

  /// `scale` of a standard deviation: n has that of 65536 equally likely numbers 2 apart, sqrt((65536^2 - 1) / 3).
  static constexpr float scale_of(double deviation) { return static_cast<float>(deviation / 37837.22725); }

 private:
  static constexpr std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  static constexpr std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
};

/// out[i] = elements[begin + i], several times faster than one by one.
void fill_random(const RandomElements& elements, std::int64_t begin, std::span<float> out);

}  // namespace specdec
