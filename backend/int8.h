#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

/// Symmetric int8 with a scale for each group of neighbours: what `dtype: int8` makes of the weights and, in a product, of its inputs
/// (docs/numerics.md, "int8").
namespace specdec {

/// Inputs that share a scale. Groups begin anew with each canonical slice, whose last one may be shorter, so that cutting a matrix over ranks cuts no
/// group. 127 * 127 * 128 < 2^24: the products of a group are summed exactly, as integers and as floats.
inline constexpr std::int64_t kInt8Group = 128;
inline constexpr float kInt8Largest = 127;

/// out[i] = values[i] / scale to the nearest integer, ties to even, within [-127, 127]; returns scale = largest magnitude / 127 in fp32. A group with a NaN
/// or an infinity has the scale NaN, one whose scale would be subnormal (which compute threads flush) the scale 0; both have zeros for integers.
inline float quantise_group(std::span<const float> values, std::int8_t* out) {
  std::uint32_t largest = 0;  // magnitudes are ordered as their bits are, and NaNs come last
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
  }
  const bool finite = largest < 0x7f800000U;
  const float scale = std::bit_cast<float>(largest) / kInt8Largest;
  if (!finite || !(scale >= std::numeric_limits<float>::min())) {
    std::fill_n(out, values.size(), std::int8_t{0});
    return finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  // Where floats are 1 apart the addition rounds, and the low bits are the integer.
  constexpr float kOnes = 0x1.8p23F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::int32_t>(values[i] / scale + kOnes);
    out[i] = static_cast<std::int8_t>(bits - std::bit_cast<std::int32_t>(kOnes));
  }
  return scale;
}

}  // namespace specdec
