#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul_kernel.h"
#include "backend/cpu/matmul_rows.h"

/// The product on tile registers, 8 tables of 16 rows of 64 bytes, as Intel AMX has them. `T` is what works on them; it lives in the unnamed namespace
/// of its file, and with it every function instantiated here (matmul_block.h says why). The unit tests have a `T` that emulates the instructions.
///
/// TileMatmul is what all types of weights share, a `Kind` what one of them makes of a slice: Bf16OnTiles (matmul_tiles_bf16.h), Int8OnTiles (matmul_tiles_int8.h).
namespace specdec {

/// What LDTILECFG reads: the size of each tile. One without rows has no bytes a row either. (No initialisers: they would make a constructor, a function.)
struct alignas(64) TileShapes {
  std::uint8_t palette;  ///< 1
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

/// A `T` has, all static, with the numbers of tiles as template parameters:
///
///     void configure(const TileShapes&);           LDTILECFG
///     void release();                              TILERELEASE
///     void zero<tile>();                           TILEZERO
///     void load<tile>(const std::byte* from);      TILELOADD, rows 64 bytes apart
///     void store<tile>(void* to);                  TILESTORED, rows 64 bytes apart
///     void prefetch(const std::byte* line);        a hint
///
/// and what its kind asks for.
template <class T>
struct OnTiles {
  static constexpr std::int64_t kTileRows = 16;
  static constexpr std::int64_t kTileFloats = kTileRows * kPanelOutputs;
  static constexpr std::int64_t kTileBytes = kTileSteps * kStepBytes;

  // The registers. Two tiles of weights take turns, so that the next one is loaded while the last one is multiplied with.
  static constexpr int kSums = 4;
  static constexpr int kInputs = kSums;
  static constexpr int kWeights = kInputs + 2;

  /// The sums of A tiles of rows times B panels; tile b * A + a is that of panel b. Of each only its rows are used.
  template <int A, int B>
  struct Sums {
    alignas(64) float of[A * B][kTileFloats];
  };

  static std::int64_t rows_of(std::int64_t rows, int a) {
    const std::int64_t left = rows - a * kTileRows;
    return left < kTileRows ? left : kTileRows;
  }

  /// Bytes to ask for, of each of the first `soon` panels.
  struct Ahead {
    const std::byte* weights;
    std::int64_t panel_bytes;
    int soon;
  };

  /// Where a block reads next.
  struct Place {
    const std::byte* weights;  ///< of the first panel, from its beginning
    std::int64_t panel_bytes;
    std::int64_t at;  ///< in each panel
    const std::byte* x;
    std::int64_t rows;
    std::int64_t distance;  ///< how far ahead weights are asked for
    Ahead next;             ///< what comes after these panels
    const std::byte* end;   ///< of the matrix

    /// What is read `distance` from here, where nothing that is asked for at once goes on behind the end of a panel.
    template <int B>
    Ahead ahead() const {
      const std::int64_t over = at + distance - panel_bytes;
      return over < 0 ? Ahead{weights + at + distance, panel_bytes, B}
                      : Ahead{next.weights + over, next.panel_bytes, next.soon};
    }
  };

  /// Part `part` of `parts` of the first `lines` lines of each of B panels. A part goes with each tile of weights: the CPU reads ahead by itself in several places
  /// at once, but in one after another where whole tiles are asked for.
  template <int B>
  static void ask_for(const Ahead& ahead, std::int64_t lines, int part, int parts) {
#pragma GCC unroll 4
    for (int panel = 0; panel < B; ++panel) {
      if (panel < ahead.soon) {
        for (std::int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
          T::prefetch(ahead.weights + panel * ahead.panel_bytes + line * kStepBytes);
        }
      }
    }
  }

  template <int kCount, int kFirst = 0>
  static void zero() {
    T::template zero<kFirst>();
    if constexpr (kFirst + 1 < kCount) {
      zero<kCount, kFirst + 1>();
    }
  }

  template <int A, int B, int kFirst = 0>
  static void store(Sums<A, B>& sums) {
    T::template store<kFirst>(sums.of[kFirst]);
    if constexpr (kFirst + 1 < A * B) {
      store<A, B, kFirst + 1>(sums);
    }
  }
};

/// A `Kind` is OnTiles<T> with
///
///     using Tiles = T;
///     int kRowTiles                                tiles of rows of a block, at most 2
///     std::int64_t kAheadBytes                     how far ahead of its use each panel's weights are asked for
///     void sum_slice<A, B>(Place&, std::int64_t steps, Sums<A, B>&)   of a slice that has steps; goes on behind it
///     std::int64_t steps_of_tiles(const MatmulJob&)                   of a tile of weights or inputs, at most kTileSteps
///     pack, kXStepBytes, kXGroupBytes              MatmulKernel's
///
/// An output is the sum of its slices in the fixed tree.
template <class Kind>
struct TileMatmul {
  using T = typename Kind::Tiles;
  using Ahead = typename Kind::Ahead;
  using Place = typename Kind::Place;
  template <int A, int B>
  using Sums = typename Kind::template Sums<A, B>;
  static constexpr std::int64_t kTileRows = Kind::kTileRows;
  static constexpr std::int64_t kMaxRows = Kind::kRowTiles * kTileRows;
  static constexpr std::int64_t kAheadBytes = Kind::kAheadBytes;
  /// Levels of the tree, the root's included.
  static constexpr int kLevels = 7;
  static_assert(kMaxSlices <= 1 << (kLevels - 1));

  static std::int64_t rows_of(std::int64_t rows, int a) { return Kind::rows_of(rows, a); }

  template <int A>
  static void configure(std::int64_t rows, std::int64_t steps) {
    TileShapes shapes = {};
    shapes.palette = 1;
    for (int tile = 0; tile < Kind::kWeights; ++tile) {
      shapes.rows[tile] = static_cast<std::uint8_t>(rows_of(rows, tile % A));
      shapes.row_bytes[tile] = static_cast<std::uint16_t>(tile < Kind::kInputs ? kStepBytes : 4 * steps);
    }
    for (int tile = Kind::kWeights; tile < Kind::kWeights + 2; ++tile) {
      shapes.rows[tile] = static_cast<std::uint8_t>(steps);
      shapes.row_bytes[tile] = kStepBytes;
    }
    T::configure(shapes);
  }

  template <int A, int B>
  static void add(std::int64_t rows, const Sums<A, B>& left, Sums<A, B>& right) {
    for (int sum = 0; sum < A * B; ++sum) {
      for (std::int64_t r = 0; r < rows_of(rows, sum % A); ++r) {
        const float* from = left.of[sum] + r * kPanelOutputs;
        float* to = right.of[sum] + r * kPanelOutputs;
        for (std::int64_t i = 0; i < kPanelOutputs; ++i) {
          to[i] = from[i] + to[i];
        }
      }
    }
  }

  template <int A, int B>
  static void fill_minus_zero(Sums<A, B>& sums) {
    for (int sum = 0; sum < A * B; ++sum) {
      for (std::int64_t i = 0; i < Kind::kTileFloats; ++i) {
        sums.of[sum][i] = -0.0F;
      }
    }
  }

  /// What a block asks for where its own panels are all asked for.
  template <int B>
  static Ahead after(const MatmulJob& job, std::int64_t panel, std::int64_t last) {
    const std::int64_t left = last - panel;
    const bool at_end = left == 0 && job.next.data != nullptr;
    const PanelRun next = at_end ? job.next : PanelRun{job.panels + panel * job.panel_bytes, job.panel_bytes, left};
    return {next.data, next.bytes, next.count < 0 ? 0 : static_cast<int>(next.count < B ? next.count : B)};
  }

  /// B panels from `panel` on. Weights up to panel `last` come next and are worth asking for, and after them the next matrix; none of them if it is -1.
  template <int A, int B>
  static void block(const MatmulJob& job, std::int64_t rows, const std::byte* x, float* y, std::int64_t panel,
                    std::int64_t last) {
    Sums<A, B> level[kLevels];
    Place place = {.weights = job.panels + panel * job.panel_bytes,
                   .panel_bytes = job.panel_bytes,
                   .at = 0,
                   .x = x,
                   .rows = rows,
                   .distance = job.panel_bytes < kAheadBytes ? job.panel_bytes : kAheadBytes,
                   .next = after<B>(job, panel + B, last),
                   .end = job.panels + (job.outputs + kPanelOutputs - 1) / kPanelOutputs * job.panel_bytes};
    int top = 0;  // where in the tree the last sum stands
    if (job.slices == 0) {
      fill_minus_zero<A, B>(level[0]);
      write<A, B>(job, rows, level[0], y, panel);
      return;
    }
    for (std::int64_t slice = 0; slice < job.slices; ++slice) {
      // Counting in binary adds equal subtrees as soon as both are there: neighbours first, as the tree does. The place of a carry is free.
      top = 0;
      for (std::int64_t count = slice; (count & 1) != 0; count >>= 1) {
        ++top;
      }
      if (job.slice_steps[slice] == 0) {
        fill_minus_zero<A, B>(level[top]);
      } else {
        Kind::template sum_slice<A, B>(place, job.slice_steps[slice], level[top]);
      }
      for (int i = 0; i < top; ++i) {
        add<A, B>(rows, level[i], level[top]);
      }
    }
    // What is left are the odd ones that passed up.
    for (int i = top + 1; i < kLevels; ++i) {
      if ((((job.slices - 1) >> i) & 1) != 0) {
        add<A, B>(rows, level[i], level[top]);
      }
    }
    write<A, B>(job, rows, level[top], y, panel);
  }

  template <int A, int B>
  static void write(const MatmulJob& job, std::int64_t rows, const Sums<A, B>& sums, float* y, std::int64_t panel) {
    for (int sum = 0; sum < A * B; ++sum) {
      const std::int64_t first = (panel + sum / A) * kPanelOutputs;
      const std::int64_t left = job.outputs - first;
      const float* from = sums.of[sum];
      float* to = y + sum % A * kTileRows * job.y_stride + first;
      for (std::int64_t r = 0; r < rows_of(rows, sum % A); ++r, from += kPanelOutputs, to += job.y_stride) {
        if (left >= kPanelOutputs) {
          __builtin_memcpy(to, from, kPanelOutputs * sizeof(float));
        } else {
          for (std::int64_t i = 0; i < left; ++i) {
            to[i] = from[i];
          }
        }
      }
    }
  }

  /// As block(), `count` <= B panels.
  template <int A, int B>
  static void some(std::int64_t count, const MatmulJob& job, std::int64_t rows, const std::byte* x, float* y,
                   std::int64_t panel, std::int64_t last) {
    if constexpr (B > 1) {
      if (count < B) {
        some<A, B - 1>(count, job, rows, x, y, panel, last);
        return;
      }
    }
    block<A, B>(job, rows, x, y, panel, last);
  }

  /// Panels [begin, end), up to B side by side: independent chains hide the latency of a product, and inputs serve several
  /// panels. In parts as equal as can be, larger ones first.
  template <int A, int B>
  static void panels(const MatmulJob& job, std::int64_t rows, const std::byte* x, float* y, std::int64_t begin,
                     std::int64_t end, std::int64_t last) {
    static_assert(A * B <= Kind::kSums);
    while (begin < end) {
      const std::int64_t parts = (end - begin + B - 1) / B;
      const std::int64_t count = (end - begin + parts - 1) / parts;
      some<A, B>(count, job, rows, x, y, begin, last);
      begin += count;
    }
  }

  static std::int64_t side_by_side(std::int64_t rows) { return rows <= kTileRows ? 4 : 2; }

  static void run(const MatmulJob& job, std::int64_t begin, std::int64_t end) {
    const std::int64_t steps = Kind::steps_of_tiles(job);
    for_blocks_of_rows(job, begin, end, &side_by_side, [&](const BlockOfRows& of) {
      const std::int64_t last = of.new_next ? end : -1;
      if constexpr (Kind::kRowTiles > 1) {
        if (of.rows > kTileRows) {
          configure<2>(of.rows, steps);
          panels<2, 2>(job, of.rows, of.x, of.y, of.begin, of.end, last);
          return;
        }
      }
      configure<1>(of.rows, steps);
      panels<1, 4>(job, of.rows, of.x, of.y, of.begin, of.end, last);
    });
    T::release();
  }

  static constexpr MatmulKernel kernel() {
    return {.run = &run,
            .pack = &Kind::pack,
            .side_by_side = &side_by_side,
            .x_step_bytes = Kind::kXStepBytes,
            .x_group_bytes = Kind::kXGroupBytes,
            .max_rows = kMaxRows};
  }
};

}  // namespace specdec
