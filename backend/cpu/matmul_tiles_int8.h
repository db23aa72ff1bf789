#pragma once

#include "backend/cpu/matmul_tiles.h"

namespace specdec {

/// int8, with the bits of every other instruction set (matmul_block.h). A `T` also has:
///
///     void dot_int8<sum, inputs, weights>();       TDPBSSD
///     float quantise(const float* x, std::int64_t count, std::int8_t* to);   quantise_group() of backend/int8.h, in whole groups: the others are zero
///     void add_scaled<first>(const std::int32_t* integers, const float* x_scales, const std::byte* scales, std::int64_t rows, float* sums);
///                                                  what a group adds to a slice: sums [rows, 16] += integers [rows, 16] x_scales [rows], times scales [16];
///                                                  to zeros, whatever lies there, if it is the slice's first
///
/// A group is two tiles of weights at most. The second one, or the only one, of a short group reads on in what lies behind, the group's scales and further
/// groups, for which x has zeros.
template <class T>
struct Int8OnTiles : OnTiles<T> {
  using Tiles = T;
  using Base = OnTiles<T>;
  using typename Base::Ahead;
  using typename Base::Place;
  template <int A, int B>
  using Sums = typename Base::template Sums<A, B>;
  using Base::kInputs;
  using Base::kTileBytes;
  using Base::kTileFloats;
  using Base::kWeights;

  static constexpr int kRowTiles = 1;
  static constexpr std::int64_t kGroupInputs = kInt8GroupSteps * kInt8StepInputs;
  static constexpr std::int64_t kXStepBytes = 0;  // groups are whole
  static constexpr std::int64_t kXGroupBytes = sizeof(float) + kGroupInputs;
  static constexpr std::int64_t kAheadBytes = (kInt8GroupSteps + 1) * kStepBytes;
  static_assert(kInt8GroupSteps == 2 * kTileSteps);

  template <int B>
  struct Integers {
    alignas(64) std::int32_t of[B][kTileFloats];
  };

  /// Those of the largest group, of small models a few.
  static std::int64_t steps_of_tiles(const MatmulJob& job) {
    std::int64_t most = 1;
    for (std::int64_t slice = 0; slice < job.slices; ++slice) {
      most = job.slice_steps[slice] > most ? job.slice_steps[slice] : most;
    }
    return most < kTileSteps ? most : kTileSteps;
  }

  /// A tile that ends in the matrix.
  template <int kTile>
  static void load(const std::byte* from, const std::byte* end) {
    if (end - from >= kTileBytes) {
      T::template load<kTile>(from);
      return;
    }
    alignas(64) std::byte tile[kTileBytes] = {};
    __builtin_memcpy(tile, from, static_cast<std::size_t>(end - from));
    T::template load<kTile>(tile);
  }

  /// Of what is read place.distance from here, which may begin in these panels and end in those that come next.
  template <int B>
  static void ask_for(const Place& place, std::int64_t lines, int part, int parts) {
    const std::int64_t left = (place.panel_bytes - place.at - place.distance) / kStepBytes;
    const std::int64_t own = left < 0 ? 0 : left < lines ? left : lines;
    if (own > 0) {
      Base::template ask_for<B>({place.weights + place.at + place.distance, place.panel_bytes, B}, own, part, parts);
    }
    if (own < lines) {
      const std::int64_t over = left < 0 ? -left * kStepBytes : 0;
      const Ahead& next = place.next;
      Base::template ask_for<B>({next.weights + over, next.panel_bytes, next.soon}, lines - own, part, parts);
    }
  }

  /// A group of each panel from b on, times the inputs that are loaded.
  template <int B, int b = 0>
  static void multiply(const Place& place, std::int64_t steps, Integers<B>& integers) {
    const std::byte* const weights = place.weights + b * place.panel_bytes + place.at;
    T::template zero<b>();
    load<kWeights>(weights, place.end);
    T::template dot_int8<b, kInputs, kWeights>();
    if (steps > kTileSteps) {
      load<kWeights + 1>(weights + kTileBytes, place.end);
      T::template dot_int8<b, kInputs + 1, kWeights + 1>();
    }
    ask_for<B>(place, steps + 1, b, B);
    T::template store<b>(integers.of[b]);
    if constexpr (b + 1 < B) {
      multiply<B, b + 1>(place, steps, integers);
    }
  }

  template <int A, int B>
  static void sum_slice(Place& place, std::int64_t steps, Sums<A, B>& sums) {
    static_assert(A == 1);
    Integers<B> integers;
    for (bool first = true; steps > 0; first = false) {
      const std::int64_t group = steps < kInt8GroupSteps ? steps : kInt8GroupSteps;
      const auto* const x_scales = reinterpret_cast<const float*>(place.x);
      const std::byte* const x = place.x + place.rows * static_cast<std::int64_t>(sizeof(float));
      T::template load<kInputs>(x);
      if (group > kTileSteps) T::template load<kInputs + 1>(x + place.rows * kStepBytes);
      multiply<B>(place, group, integers);
      for (int b = 0; b < B; ++b) {
        const std::byte* const scales = place.weights + b * place.panel_bytes + place.at + group * kStepBytes;
        first ? T::template add_scaled<true>(integers.of[b], x_scales, scales, place.rows, sums.of[b])
              : T::template add_scaled<false>(integers.of[b], x_scales, scales, place.rows, sums.of[b]);
      }
      place.at += (group + 1) * kStepBytes;
      place.x += place.rows * kXGroupBytes;
      steps -= group;
    }
  }

  /// For each group the scales of the rows, the first tile of them all, the second.
  static void pack(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, std::byte* packed) {
    for (; count > 0; x += kGroupInputs, count -= kGroupInputs, packed += rows * kXGroupBytes) {
      std::byte* tile = packed + rows * static_cast<std::int64_t>(sizeof(float));
      for (std::int64_t r = 0; r < rows; ++r, tile += kStepBytes) {
        alignas(64) std::int8_t integers[kGroupInputs];
        const float scale = T::quantise(x + r * stride, count < kGroupInputs ? count : kGroupInputs, integers);
        __builtin_memcpy(packed + r * static_cast<std::int64_t>(sizeof scale), &scale, sizeof scale);
        __builtin_memcpy(tile, integers, kStepBytes);
        __builtin_memcpy(tile + rows * kStepBytes, integers + kStepBytes, kStepBytes);
      }
    }
  }
};

}  // namespace specdec
