#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace specdec {

/// Element types of checkpoints and of packed weights; which backend packs which is said at LinearSpec (backend.h). kInt8 is of packed weights
/// only, which have scales beside their elements (backend/int8.h).
enum class DType : std::uint8_t { kF32, kF16, kBF16, kInt8 };

constexpr std::size_t size_of(DType type) { return type == DType::kF32 ? 4 : type == DType::kInt8 ? 1 : 2; }

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kInt8:
      return "int8";
  }
  return "?";
}

/// One bfloat16 in memory or in a message.
struct BF16 {
  std::uint16_t bits = 0;
};

/// bfloat16 bits to float; exact.
constexpr float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// float to bfloat16 bits, round to nearest even; subnormal inputs become zero of their sign, as VCVTNE2PS2BF16 does,
/// so that every instruction set rounds alike. A NaN stays a (quiet) NaN.
constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  if (magnitude < 0x00800000U) {
    return static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// IEEE half bits to float; exact.
constexpr float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1fU) {
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  }
  // Subnormal: mantissa * 2^-24, exact in float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

/// float to IEEE half bits, round to nearest even: from 65520 on it is infinite, and below 2^-14 it loses bits. A NaN stays a (quiet) NaN.
constexpr std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return static_cast<std::uint16_t>(sign | 0x7e00U);
  }
  if (magnitude >= 0x477ff000U) {
    return static_cast<std::uint16_t>(sign | 0x7c00U);
  }
  if (magnitude < 0x38800000U) {
    // One half has the grain of a subnormal half, 2^-24: the addition rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5F)));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

/// Element `index` of an array of `type`, as float.
inline float load_as_float(const std::byte* data, DType type, std::int64_t index) {
  // Checkpoints are mapped bytes with no alignment promise, so elements are assembled rather than dereferenced.
  const std::byte* at = data + index * static_cast<std::int64_t>(size_of(type));
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < size_of(type); ++i) {
    bits |= std::to_integer<std::uint32_t>(at[i]) << (8 * i);
  }
  switch (type) {
    case DType::kF32:
      return std::bit_cast<float>(bits);
    case DType::kF16:
      return f16_to_float(static_cast<std::uint16_t>(bits));
    case DType::kBF16:
      return bf16_to_float(static_cast<std::uint16_t>(bits));
    case DType::kInt8:
      return static_cast<float>(static_cast<std::int8_t>(bits));
  }
  return 0.0F;
}

/// out[i] = element i of an array of `type`, all of them in one go.
inline void load_as_floats(const std::byte* data, DType type, std::span<float> out) {
  const auto halves = [&](auto&& to_float) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, data + i * sizeof bits, sizeof bits);
      out[i] = to_float(bits);
    }
  };
  switch (type) {
    case DType::kF32:
      // Not memcpy, which must not be given the null of no elements.
      std::copy_n(data, out.size_bytes(), std::as_writable_bytes(out).begin());
      return;
    case DType::kF16:
      halves(f16_to_float);
      return;
    case DType::kBF16:
      halves(bf16_to_float);
      return;
    case DType::kInt8:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = load_as_float(data, type, static_cast<std::int64_t>(i));
      }
      return;
  }
}

}  // namespace specdec
