#pragma once

#include <array>
#include <cstdint>

#include "backend/cuda/kernels/device.h"
#include "backend/philox.h"

namespace specdec::battery {

struct PhiloxNumber {
  std::array<std::uint32_t, 4> words;
  double uniform;
};

/// Number n of a stream whose counters and keys have bits everywhere.
constexpr PhiloxNumber philox_number(std::uint32_t n) {
  const std::uint32_t mixed = n * 0x9E3779B9U;
  PhiloxNumber number{philox4x32({n, ~n, mixed, n << 16}, {mixed ^ 0xdeadbeefU, ~mixed}), 0};
  number.uniform = uniform_of(number.words[0], number.words[1]);
  return number;
}

/// numbers[n] of every thread n of the grid.
template <class Gpu>
SPECDEC_DEVICE void philox_numbers(Gpu& gpu, PhiloxNumber* numbers) {
  const auto n = static_cast<std::uint32_t>(gpu.block_x() * gpu.threads() + gpu.thread());
  numbers[n] = philox_number(n);
}

}  // namespace specdec::battery
