#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/matmul_tiles_bf16.h"
#include "backend/cpu/matmul_tiles_int8.h"
#include "backend/dtype.h"
#include "backend/int8.h"

namespace specdec::tests {

/// The AMX instructions that TileMatmul uses, as the pseudo code of Intel's Software Developer's Manual (volume 2) has them, for CPUs that have none. What
/// would raise an exception ends the program. Each thread has its own tiles.
class EmulatedTiles {
 public:
  static void configure(const TileShapes& shapes) {
    expect(shapes.palette == 1 && shapes.start_row == 0, "LDTILECFG: palette 1, from row 0");
    for (const std::uint8_t byte : shapes.reserved) {
      expect(byte == 0, "LDTILECFG: reserved bytes are zero");
    }
    for (int tile = 0; tile < 16; ++tile) {
      const bool empty = shapes.rows[tile] == 0;
      expect(shapes.rows[tile] <= 16 && shapes.row_bytes[tile] <= 64 && empty == (shapes.row_bytes[tile] == 0) &&
                 (tile < kTiles || empty),
             "LDTILECFG: at most 16 rows of 64 bytes, and of 8 tiles");
    }
    state() = State{.shapes = shapes, .configured = true};
  }

  static void release() { state() = State{}; }
  static bool configured() { return state().configured; }

  template <int kTile>
  static void zero() {
    tile<kTile>() = {};
  }

  template <int kTile>
  static void load(const std::byte* from) {
    Tile& to = tile<kTile>();
    to = {};
    for (int row = 0; row < state().shapes.rows[kTile]; ++row, from += 64) {
      std::memcpy(to.row[row], from, state().shapes.row_bytes[kTile]);
    }
    if (trace() != nullptr) {
      trace()->push_back({from - std::ptrdiff_t{64} * state().shapes.rows[kTile], kTile, false});
    }
  }

  template <int kTile>
  static void store(void* memory) {
    auto* to = static_cast<std::byte*>(memory);
    const Tile& from = tile<kTile>();
    for (int row = 0; row < state().shapes.rows[kTile]; ++row, to += 64) {
      std::memcpy(to, from.row[row], state().shapes.row_bytes[kTile]);
    }
  }

  /// C [m, n] += A [m, k pairs] B [k pairs, n]. Of each output the even and the odd inputs are summed apart, from zero; then both are added, and then to C.
  template <int kC, int kA, int kB>
  static void dot() {
    const auto [c, a, b, rows, outputs, pairs] = operands<kC, kA, kB>("TDPBF16PS: the shapes fit");
    for (int m = 0; m < rows; ++m) {
      float sum[16][2] = {};
      for (int k = 0; k < pairs; ++k) {
        for (int n = 0; n < outputs; ++n) {
          for (int i = 0; i < 2; ++i) {
            sum[n][i] = flushed(fused(half(a, m, 2 * k + i), half(b, k, 2 * n + i), sum[n][i]));
          }
        }
      }
      for (int n = 0; n < outputs; ++n) {
        float value = 0;
        std::memcpy(&value, c.row[m] + 4 * n, sizeof value);
        value = flushed(flushed(value) + flushed(sum[n][0] + sum[n][1]));
        std::memcpy(c.row[m] + 4 * n, &value, sizeof value);
      }
    }
  }

  /// C [m, n] += A [m, k fours] B [k fours, n], of integers.
  template <int kC, int kA, int kB>
  static void dot_int8() {
    const auto [c, a, b, rows, outputs, fours] = operands<kC, kA, kB>("TDPBSSD: the shapes fit");
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < outputs; ++n) {
        std::int32_t sum = 0;
        std::memcpy(&sum, c.row[m] + 4 * n, sizeof sum);
        for (int k = 0; k < fours; ++k) {
          for (int i = 0; i < 4; ++i) {
            sum += static_cast<std::int8_t>(a.row[m][4 * k + i]) * static_cast<std::int8_t>(b.row[k][4 * n + i]);
          }
        }
        std::memcpy(c.row[m] + 4 * n, &sum, sizeof sum);
      }
    }
  }

  static float quantise(const float* x, std::int64_t count, std::int8_t* to) {
    std::fill_n(to, kInt8Group, std::int8_t{0});
    return quantise_group({x, static_cast<std::size_t>(count)}, to);
  }

  template <bool kFirst>
  static void add_scaled(const std::int32_t* integers, const float* x_scales, const std::byte* scales,
                         std::int64_t rows, float* sums) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < kPanelOutputs; ++i, ++integers, ++sums) {
        float scale = 0;
        std::memcpy(&scale, scales + i * static_cast<std::int64_t>(sizeof scale), sizeof scale);
        *sums = std::fma(static_cast<float>(*integers) * x_scales[r], scale, kFirst ? 0.0F : *sums);
      }
    }
  }

  static void prefetch(const std::byte* line) {
    if (trace() != nullptr) {
      trace()->push_back({line, -1, true});
    }
  }

  static void round(const float* x, std::int64_t count, std::byte* to) {
    std::memset(to, 0, 64);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint16_t bits = float_to_bf16(x[i]);
      std::memcpy(to + 2 * i, &bits, sizeof bits);
    }
  }

  /// What a thread has loaded, by tiles, and asked for, by lines, in order, while its trace() is not null.
  struct Access {
    const std::byte* from;
    int tile;
    bool prefetched;
  };
  static std::vector<Access>*& trace() {
    thread_local std::vector<Access>* accesses = nullptr;
    return accesses;
  }

 private:
  static constexpr int kTiles = 8;
  struct Tile {
    std::byte row[16][64] = {};
  };
  struct State {
    TileShapes shapes = {};
    bool configured = false;
    Tile tile[kTiles];
  };

  static State& state() {
    thread_local State own;
    return own;
  }

  static void expect(bool holds, const char* what) {
    if (!holds) {
      std::fprintf(stderr, "emulated tiles: expected %s\n", what);
      std::abort();
    }
  }

  template <int kTile>
  static Tile& tile() {
    static_assert(kTile >= 0 && kTile < kTiles);
    expect(state().configured && state().shapes.rows[kTile] > 0, "a tile that is configured");
    return state().tile[kTile];
  }

  /// Of C += A B.
  struct Operands {
    Tile& c;
    const Tile& a;
    const Tile& b;
    int rows;
    int outputs;
    int depth;  ///< words of a row of A, rows of B
  };
  template <int kC, int kA, int kB>
  static Operands operands(const char* expected) {
    static_assert(kC != kA && kA != kB && kC != kB);
    const TileShapes& shapes = state().shapes;
    const Operands found = {
        tile<kC>(), tile<kA>(), tile<kB>(), shapes.rows[kC], shapes.row_bytes[kC] / 4, shapes.row_bytes[kA] / 4};
    expect(shapes.rows[kA] == found.rows && shapes.row_bytes[kB] / 4 == found.outputs && shapes.rows[kB] == found.depth,
           expected);
    return found;
  }

  static float flushed(float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
  }

  /// std::fma, which is slow. A product of two bf16 that is a float's exactly needs none: all do that stay in its range.
  static float fused(float x, float y, float z) {
    const float product = x * y;
    return std::isnormal(product) || x == 0 ? z + product : std::fma(x, y, z);
  }

  static float half(const Tile& of, int row, int element) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, of.row[row] + std::ptrdiff_t{2} * element, sizeof bits);
    return flushed(bf16_to_float(bits));
  }
};

inline constexpr MatmulKernel kMatmulEmulatedTiles = TileMatmul<Bf16OnTiles<EmulatedTiles>>::kernel();
inline constexpr MatmulKernel kMatmulEmulatedTilesInt8 = TileMatmul<Int8OnTiles<EmulatedTiles>>::kernel();

}  // namespace specdec::tests
