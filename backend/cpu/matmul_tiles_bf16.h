#pragma once

#include "backend/cpu/matmul_tiles.h"

namespace specdec {

/// bf16. A `T` also has:
///
///     void dot<sum, inputs, weights>();            TDPBF16PS
///     void round(const float* x, std::int64_t count, std::byte* to);   `count` of 32 inputs to bf16 as float_to_bf16 does, the others zero
///
/// A slice is summed from zero by one TDPBF16PS for each 32 inputs, in order. What happens within one TDPBF16PS is the instruction's own; it treats each row by
/// itself and in the same way, so a row's bits depend neither on how many there are nor on where among them it lies. That is all that the promise about rows needs.
template <class T>
struct Bf16OnTiles : OnTiles<T> {
  using Tiles = T;
  using Base = OnTiles<T>;
  using typename Base::Ahead;
  using typename Base::Place;
  template <int A, int B>
  using Sums = typename Base::template Sums<A, B>;
  using Base::kInputs;
  using Base::kTileBytes;
  using Base::kTileRows;
  using Base::kWeights;

  static constexpr int kRowTiles = 2;
  static constexpr std::int64_t kXStepBytes = 4;
  static constexpr std::int64_t kXGroupBytes = 0;
  /// docs/kernels.md, "AMX BF16".
  static constexpr std::int64_t kAheadBytes = 2 * kTileBytes;

  static std::int64_t steps_of_tiles(const MatmulJob& /*job*/) { return kTileSteps; }

  /// One tile of weights of each panel from b on, times the inputs that are loaded.
  template <int A, int B, int b = 0>
  static void multiply(const std::byte* weights, std::int64_t panel_bytes, const Ahead& ahead) {
    constexpr int kTile = kWeights + b % 2;
    T::template load<kTile>(weights);
    T::template dot<b * A, kInputs, kTile>();
    if constexpr (A > 1) {
      T::template dot<b * A + 1, kInputs + 1, kTile>();
    }
    Base::template ask_for<B>(ahead, kTileSteps, b, B);
    if constexpr (b + 1 < B) {
      multiply<A, B, b + 1>(weights + panel_bytes, panel_bytes, ahead);
    }
  }

  template <int A, int B>
  static void sum_slice(Place& place, std::int64_t steps, Sums<A, B>& sums) {
    Base::template zero<A * B>();
    for (std::int64_t step = 0; step < steps; step += kTileSteps) {
      T::template load<kInputs>(place.x);
      if constexpr (A > 1) {
        T::template load<kInputs + 1>(place.x + kTileRows * kStepBytes);
      }
      multiply<A, B>(place.weights + place.at, place.panel_bytes, place.template ahead<B>());
      place.at += kTileBytes;
      place.x += place.rows * kStepBytes;
    }
    Base::template store<A, B>(sums);
  }

  static void pack(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, std::byte* packed) {
    constexpr std::int64_t kTileInputs = 2 * kTileSteps;
    for (std::int64_t i = 0; i < count; i += kTileInputs) {
      const std::int64_t inputs = count - i < kTileInputs ? count - i : kTileInputs;
      for (std::int64_t r = 0; r < rows; ++r, packed += kStepBytes) {
        T::round(x + r * stride + i, inputs, packed);
      }
    }
  }
};

}  // namespace specdec
