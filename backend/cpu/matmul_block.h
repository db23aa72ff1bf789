#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/cpu/matmul_kernel.h"
#include "backend/cpu/matmul_rows.h"

/// The skinny product, once for all instruction sets. `V` says how 16 outputs are held and multiplied; it lives in the
/// unnamed namespace of its file, and with it every function instantiated here, so no code of one instruction set can
/// be linked in place of another's.
///
/// The inner loop never depends on rows, threads or place: an output is one chain of fused multiply-adds down its
/// slice, and the chains of its slices meet in the fixed tree. Only how many outputs run side by side varies.
///
/// Of int8 a slice is summed by groups. The products of a group are integers, so their sum is the same in whatever order and with whatever
/// instructions it is made; what is rounded, float(integers) times the scale of x, and that times the scale of the weights added to the slice's sum at
/// once, is done output by output. So all instruction sets give the same bits, and so may a matrix unit (AMX's TDPBSSD takes 16 steps as one tile).
namespace specdec {

/// What a row's inputs are packed into before rows are put side by side.
inline constexpr std::int64_t kTileBytes = 64;

/// What packed x has for each row before the steps of a group of int8.
struct Int8Header {
  float scale;
  std::int32_t start;  ///< of the group's sum: see pack_int8()
};

/// What a step asks for, beside what it multiplies with.
struct Asks {
  /// How far ahead the weights of each panel are, in bytes: a core that has sums to do does not run ahead of them far enough by itself, and the machine's own
  /// prefetchers stop at the end of a page.
  std::int64_t ahead = 2048;
  /// Into which cache, as __builtin_prefetch says it: 3 the first one, 2 the second.
  int into = 3;
  /// How often each line of weights is loaded: by each row anew and, if it is more than there are rows, in vain; 1: as the compiler likes it. A core that has little to multiply runs so far
  /// ahead with its loads that those that miss take the places of what it asked for; with more loads fewer lines fit into its queue of them.
  int loads = 1;
  /// Of each page the first lines from so far on, into the second cache, which sets the machine's own prefetchers going there. Of one panel alone; 0: not.
  std::int64_t page_starts = 0;
  /// Those so near, and inputs, into the first cache; 0: not.
  std::int64_t near = 0;
  std::int64_t inputs = 0;
  /// Or inputs by the page of weights, so many steps before it ends all those of the next one, which costs less than a line at each step; 0: not.
  std::int64_t inputs_before_page = 0;

  bool operator==(const Asks&) const = default;
};

/// How a `V` reads weights unless it says otherwise.
struct Streams {
  /// Panels side by side at most, each of which is a stream of its own.
  static constexpr int most_panels(int /*rows*/, ReadFrom /*from*/) { return 8; }
  static constexpr Asks asks(int /*rows*/, int /*panels*/, ReadFrom /*from*/) { return {}; }
  /// Whether, where the registers hold one panel of so many rows but not two, three are taken as twice one and a half (SkinnyMatmul::three_by_two).
  static constexpr bool kMayHalve = false;
  /// Whether blocks of rows share the asking for what they multiply with next (BlockOfRows::later). Not where the first block takes as long as its weights take to come.
  static constexpr bool kShareReading = true;
  static constexpr bool kEachPacks = false;  ///< MatmulKernel::each_packs

  template <int kInto>
  [[gnu::always_inline]] static void ask_for(const std::byte* line) {
    __builtin_prefetch(line, 0, kInto);
  }
};

/// Which rows a block has of the last of its panels.
enum class OfLast : std::uint8_t { kAll, kFirstHalf, kSecondHalf };

/// How many rows' inputs are one load.
enum class Inputs : std::uint8_t { kOfOneRow, kOfFourRows };

/// The sums that a block has side by side: of R rows and B panels.
template <int R, int B, OfLast kOfLast = OfLast::kAll, Inputs kInputs = Inputs::kOfOneRow>
struct Shape {
  static constexpr int kRows = R;
  static constexpr int kPanels = B;
  static constexpr bool kInFours = kInputs == Inputs::kOfFourRows;
  static constexpr bool has(int row, int panel) {
    return kOfLast == OfLast::kAll || panel + 1 < B || (row < R / 2) == (kOfLast == OfLast::kFirstHalf);
  }
  static constexpr int kHalves = kOfLast == OfLast::kAll ? 2 * B : 2 * B - 1;  ///< of panels
  /// The second half is of the panel in front of this one, which is in the cache by now.
  static constexpr bool kTurnsBack = kOfLast == OfLast::kSecondHalf;
  static constexpr int kNewPanels = kTurnsBack ? B - 1 : B;
};

template <class V>
struct SkinnyMatmul {
  using Acc = typename V::Acc;
  template <class S>
  using Sums = Acc[S::kRows][S::kPanels];
  /// Levels of the tree, the root's included.
  static constexpr int kLevels = 7;
  static_assert(kMaxSlices <= 1 << (kLevels - 1));

  /// Panels side by side: as many as the registers hold, so that independent chains hide the latency of a multiply-add and a
  /// broadcast input serves several panels.
  static constexpr int panels_for(int rows, ReadFrom from) {
    int panels = 1;
    while (panels < V::most_panels(rows, from) && registers_for(rows, 2 * panels) <= V::kRegisters) {
      panels *= 2;
    }
    return panels;
  }
  /// Whether three panels are two blocks, each of one and of half the rows of the middle one. What is broadcast for both is one load for two products, where one
  /// panel alone has a load for each.
  static constexpr bool three_by_two(int rows) {
    const int sums = (rows + (rows + 1) / 2) * V::kAccRegisters;
    return V::kMayHalve && panels_for(rows, ReadFrom::kCache) == 1 &&
           sums + 2 * V::kWeightRegisters + V::kInputRegisters <= V::kRegisters;
  }
  /// Inputs of four rows at a time where the registers hold one panel alone: a row by itself is a load, which would be one for each product.
  static constexpr Inputs inputs_of(int rows, int panels) {
    const bool fours = kMayTakeFours && rows % 4 == 0 && panels == 1 && panels_for(rows, ReadFrom::kCache) == 1;
    return fours ? Inputs::kOfFourRows : Inputs::kOfOneRow;
  }
  static constexpr int registers_for(int rows, int panels) {
    const int weights = (kPanelByPanel ? 1 : panels) * V::kWeightRegisters;
    const int inputs = (kPanelByPanel && panels > 1 && !kInputsAnew ? rows : 1) * V::kInputRegisters;
    return rows * panels * V::kAccRegisters + weights + inputs;
  }
  /// Where registers are few a step is taken in parts, each panel by panel, so that they hold the weights of one part of one panel only.
  static constexpr bool kPanelByPanel = requires { V::kParts; };
  /// And inputs are broadcast anew for each panel: kept, they would take the place of a panel's sums.
  static constexpr bool kInputsAnew = requires { V::kInputsAnew; };
  static constexpr bool kMayTakeFours = requires { &V::broadcast_four; };

  /// Where a block reads next.
  struct Place {
    const std::byte* weights;
    const std::byte* x;
    std::int64_t panel_bytes;
    /// From here on what is ahead lies `jump` bytes further on: in the panels that follow those beside this one, or in the next matrix. There the places
    /// are as far apart as panels are here, so that with other panels some lie behind what is read first; to tell them apart costs a small matrix more than
    /// it gains.
    const std::byte* tail;
    std::int64_t jump;
  };
  /// What is asked for of a later group.
  struct Later {
    const std::byte* lines;
    std::int64_t step;  ///< how much further on they are with each step of all panels
  };

  // Caches, as Asks::into has them.
  static constexpr int kIntoFirst = 3;
  static constexpr int kIntoSecond = 2;

  /// The panels of a shape from `panel` on; the next matrix comes after panel `last`. A distance that is not known beforehand costs three rows of weights in a cache half as much
  /// again.
  template <class S, Asks kAsks, bool kLater>
  static void block(const MatmulJob& job, const BlockOfRows& of, std::int64_t panel, std::int64_t last) {
    Sums<S> sum;
    fill<S>(sum, V::minus_zero());
    Sums<S> level[kLevels];
    const std::byte* const weights = job.panels + panel * job.panel_bytes;
    Place place = {.weights = weights,
                   .x = of.x,
                   .panel_bytes = S::kTurnsBack ? -job.panel_bytes : job.panel_bytes,
                   .tail = weights + job.panel_bytes - kAsks.ahead,
                   .jump = (S::kPanels - 1) * job.panel_bytes};
    Later later = {};
    if constexpr (kLater) {
      const std::int64_t halves = 2 * (of.end - of.begin);
      later = {.lines = of.later + of.later_bytes * (2 * (panel - of.begin) - (S::kTurnsBack ? 1 : 0)) / halves,
               .step = (of.later_bytes * S::kHalves - 1) / (halves * (job.panel_bytes / kStepBytes)) + 1};
    }
    // Behind one panel alone lie the others that come after it, so that only the end of them all is one.
    constexpr bool kAlone = S::kPanels == 1;
    if (job.next.data != nullptr && (kAlone ? panel < last : panel + S::kNewPanels == last)) {
      const std::byte* const end = kAlone ? job.panels + last * job.panel_bytes : weights + job.panel_bytes;
      place.tail = end - kAsks.ahead;
      place.jump = job.next.data - end;
    }
    for (std::int64_t slice = 0; slice < job.slices; ++slice) {
      const std::int64_t steps = job.slice_steps[slice];
      fill<S>(sum, steps == 0 ? V::minus_zero() : V::zero());
      if constexpr (requires { typename V::Dots; }) {
        add_groups<S, kAsks, kLater>(sum, steps, place, later);
      } else {
        add_steps<S, kAsks, kLater>(sum, steps, place, later);
      }
      // Counting in binary adds equal subtrees as soon as both are there: neighbours first, as the tree does.
      int at = 0;
      for (std::int64_t count = slice; (count & 1) != 0; count >>= 1, ++at) {
        add<S>(level[at], sum);
      }
      if (slice + 1 < job.slices) {
        copy<S>(sum, level[at]);
      } else {
        // What is left are the odd ones that passed up.
        for (std::int64_t count = (job.slices - 1) >> at; count != 0; count >>= 1, ++at) {
          if ((count & 1) != 0) {
            add<S>(level[at], sum);
          }
        }
      }
    }
    store<S>(job, sum, of.y, panel);
  }

  /// Steps of a shape; `at` goes on behind them. `Sum` is Acc, or Dots of int8.
  template <class S, Asks kAsks, bool kLater, class Sum>
  [[gnu::always_inline]] static void add_steps(Sum (&sum)[S::kRows][S::kPanels], std::int64_t steps, Place& at,
                                               [[maybe_unused]] Later& later) {
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::byte* const ahead = at.weights + kAsks.ahead + (at.weights >= at.tail ? at.jump : 0);
#pragma GCC unroll 16
      for (int b = 0; b < S::kNewPanels; ++b) {
        V::template ask_for<kAsks.into>(ahead + b * at.panel_bytes);
        if constexpr (kAsks.near > 0) V::template ask_for<kIntoFirst>(at.weights + kAsks.near + b * at.panel_bytes);
      }
      if constexpr (kAsks.page_starts > 0) {
        static_assert(S::kPanels == 1);
        ask_for_page_start<kAsks>(at);
      }
      if constexpr (kAsks.inputs > 0) V::template ask_for<kIntoFirst>(at.x + kAsks.inputs);
      if constexpr (kAsks.inputs_before_page > 0) ask_for_inputs_of_page<S::kRows, kAsks>(at);
      if constexpr (kLater) ask_for_later<S::kPanels>(later);
      multiply_step<S, kAsks.loads>(sum, at.weights, at.panel_bytes, at.x);
      at.weights += kStepBytes;
      at.x += S::kRows * V::kInputBytes;
    }
  }

  static constexpr std::int64_t kSmallPageBytes = 4096;

  template <Asks kAsks>
  [[gnu::always_inline]] static void ask_for_page_start(const Place& at) {
    constexpr std::uintptr_t kFirstBytes = 4 * kStepBytes;
    constexpr std::int64_t kBeyondAhead = kAsks.page_starts - kAsks.ahead;
    const std::byte* const line = at.weights + kAsks.page_starts + (at.weights >= at.tail - kBeyondAhead ? at.jump : 0);
    if (reinterpret_cast<std::uintptr_t>(line) % kSmallPageBytes < kFirstBytes) V::template ask_for<kIntoSecond>(line);
  }

  template <int R, Asks kAsks>
  [[gnu::always_inline]] static void ask_for_inputs_of_page(const Place& at) {
    constexpr std::int64_t kBefore = kAsks.inputs_before_page * kStepBytes;
    if (reinterpret_cast<std::uintptr_t>(at.weights) % kSmallPageBytes != kSmallPageBytes - kBefore) return;
    constexpr std::int64_t kStepInputBytes = R * V::kInputBytes;
    constexpr std::int64_t kLines = kSmallPageBytes / kStepBytes * kStepInputBytes / kStepBytes;
    const std::byte* const first = at.x + kAsks.inputs_before_page * kStepInputBytes;
#pragma GCC unroll 64
    for (std::int64_t line = 0; line < kLines; ++line) {
      V::template ask_for<kIntoFirst>(first + line * kStepBytes);
    }
  }

  /// The groups of a slice of int8.
  template <class S, Asks kAsks, bool kLater>
  [[gnu::always_inline]] static void add_groups(Sums<S>& sum, std::int64_t steps, Place& at, Later& later) {
    while (steps > 0) {
      const std::int64_t group = steps < kInt8GroupSteps ? steps : kInt8GroupSteps;
      const auto* const headers = reinterpret_cast<const Int8Header*>(at.x);
      at.x += S::kRows * sizeof(Int8Header);
      typename V::Dots dots[S::kRows][S::kPanels];
      for_sums<S>([&](int r, int b) { dots[r][b] = V::start(headers[r].start); });
      add_steps<S, kAsks, kLater>(dots, group, at, later);
#pragma GCC unroll 16
      for (int b = 0; b < S::kPanels; ++b) {
        const Acc scales = V::load_scales(at.weights + b * at.panel_bytes);
#pragma GCC unroll 16
        for (int r = 0; r < S::kRows; ++r) {
          if (S::has(r, b)) sum[r][b] = V::add_scaled(sum[r][b], dots[r][b], headers[r].scale, scales);
        }
      }
      at.weights += kStepBytes;
      if constexpr (kLater) ask_for_later<S::kPanels>(later);
      steps -= group;
    }
  }

  /// What falls to one step of B panels. There are two blocks of rows at least, so that half as many lines do.
  template <int B>
  [[gnu::always_inline]] static void ask_for_later(Later& later) {
#pragma GCC unroll 16
    for (int line = 0; line < (B + 1) / 2; ++line) {
      V::template ask_for<kIntoSecond>(later.lines + line * kStepBytes);
    }
    later.lines += later.step;
  }

  /// One step of a shape.
  template <class S, int kLoads, class Sum>
  [[gnu::always_inline]] static void multiply_step(Sum (&sum)[S::kRows][S::kPanels], const std::byte* weights,
                                                   std::int64_t panel_bytes, const std::byte* x) {
    constexpr int R = S::kRows;
    constexpr int B = S::kPanels;
    static_assert(kLoads == 1 || (kLoads >= R && !S::kInFours && !kPanelByPanel));
    if constexpr (S::kInFours) {
      multiply_fours<S>(sum, V::load(weights), x, std::make_integer_sequence<int, 4>());
    } else if constexpr (kPanelByPanel) {
#pragma GCC unroll 16
      for (int part = 0; part < V::kParts; ++part) {
#pragma GCC unroll 16
        for (int b = 0; b < B; ++b) {
          if constexpr (kInputsAnew && B > 1) asm volatile("" : "+r"(x));
          const typename V::Weights w = V::load(weights + b * panel_bytes, part);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            if (S::has(r, b)) sum[r][b] = V::multiply_add(sum[r][b], w, V::broadcast(x + r * V::kInputBytes, part));
          }
        }
      }
    } else {
      constexpr bool kAnew = kLoads > 1;
      typename V::Weights w[B];
#pragma GCC unroll 16
      for (int b = 0; b < B; ++b) {
        if constexpr (kAnew) {
#pragma GCC unroll 16
          for (int in_vain = R; in_vain < kLoads; ++in_vain) {
            V::load_anew(weights + b * panel_bytes);
          }
        } else {
          w[b] = V::load(weights + b * panel_bytes);
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const typename V::Input input = V::broadcast(x + r * V::kInputBytes);
#pragma GCC unroll 16
        for (int b = 0; b < B; ++b) {
          if constexpr (kAnew) w[b] = V::load_anew(weights + b * panel_bytes);
          if (S::has(r, b)) sum[r][b] = V::multiply_add(sum[r][b], w[b], input);
        }
      }
    }
  }

  /// Lane i of the inputs is of row i mod 4; turned by a lane three times, each output of the weights meets all four rows.
  template <class S, class Sum, int... kTurn>
  [[gnu::always_inline]] static void multiply_fours(Sum (&sum)[S::kRows][1], typename V::Weights weights,
                                                    const std::byte* x, std::integer_sequence<int, kTurn...>) {
    constexpr int R = S::kRows;
    typename V::Input inputs[R / 4];
#pragma GCC unroll 16
    for (int r = 0; r < R; r += 4) {
      inputs[r / 4] = V::broadcast_four(x + r * V::kInputBytes);
    }
    const auto multiply = [&](int turn, typename V::Weights turned) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int r = 0; r < R; r += 4) {
        sum[r + turn][0] = V::multiply_add(sum[r + turn][0], turned, inputs[r / 4]);
      }
    };
    (multiply(kTurn, V::template turned<kTurn>(weights)), ...);
  }

  /// Calls act(row, panel) for each sum; of four rows' inputs, before turn_back(), it is one of the four's.
  template <class S, class Act>
  [[gnu::always_inline]] static void for_sums(const Act& act) {
#pragma GCC unroll 16
    for (int r = 0; r < S::kRows; ++r) {
#pragma GCC unroll 16
      for (int b = 0; b < S::kPanels; ++b) {
        if (S::has(r, b)) act(r, b);
      }
    }
  }

  template <class S>
  static void add(const Sums<S>& left, Sums<S>& right) {
    for_sums<S>([&](int r, int b) { right[r][b] = V::add(left[r][b], right[r][b]); });
  }

  template <class S>
  static void copy(const Sums<S>& from, Sums<S>& to) {
    for_sums<S>([&](int r, int b) { to[r][b] = from[r][b]; });
  }

  template <class S>
  static void fill(Sums<S>& sum, const Acc& value) {
    for_sums<S>([&](int r, int b) { sum[r][b] = value; });
  }

  [[gnu::always_inline]] static void store_vector([[maybe_unused]] const MatmulJob& job, float* to, const Acc& acc) {
    if constexpr (requires { V::store_past_caches(to, acc); }) {
      if (job.y_past_caches) {
        V::store_past_caches(to, acc);
        return;
      }
    }
    V::store(to, acc);
  }

  template <class S>
  static void store(const MatmulJob& job, Sums<S>& sum, float* y, std::int64_t panel) {
    if constexpr (S::kInFours) {
#pragma GCC unroll 16
      for (int r = 0; r < S::kRows; r += 4) {
        V::turn_back(sum[r][0], sum[r + 1][0], sum[r + 2][0], sum[r + 3][0]);
      }
    }
    for_sums<S>([&](int r, int b) {
      const std::int64_t first = (panel + (S::kTurnsBack ? -b : b)) * kPanelOutputs;
      const std::int64_t left = job.outputs - first;
      float* to = y + r * job.y_stride + first;
      if (left >= kPanelOutputs) {
        store_vector(job, to, sum[r][b]);
      } else {
        alignas(64) float lanes[kPanelOutputs];
        V::store(lanes, sum[r][b]);
        for (std::int64_t i = 0; i < left; ++i) {
          to[i] = lanes[i];
        }
      }
    });
  }

  /// The panels of `of` from `begin` on for R rows, B at a time, what is left in halves. After panel `last` comes the next matrix.
  template <int R, ReadFrom kFrom, bool kLater, int B = panels_for(R, kFrom)>
  static void panels(const MatmulJob& job, const BlockOfRows& of, std::int64_t begin, std::int64_t last) {
    if constexpr (three_by_two(R) && (kFrom == ReadFrom::kMemory || kLater)) {
      constexpr Asks kAsks = V::asks(R, 2, kFrom);
      for (; begin + 3 <= of.end; begin += 3) {
        block<Shape<R, 2, OfLast::kFirstHalf>, kAsks, kLater>(job, of, begin, last);
        block<Shape<R, 2, OfLast::kSecondHalf>, kAsks, kLater>(job, of, begin + 2, last);
      }
    }
    for (; begin + B <= of.end; begin += B) {
      block<Shape<R, B, OfLast::kAll, inputs_of(R, B)>, V::asks(R, B, kFrom), kLater>(job, of, begin, last);
    }
    if constexpr (B > 1) {
      panels<R, kFrom, kLater, B / 2>(job, of, begin, last);
    }
  }

  using Panels = decltype(&panels<1, ReadFrom::kMemory, false>);
  struct OfRows {
    Panels from_memory;
    Panels from_either;
    Panels from_cache;
    Panels asking_for_later;
    std::int64_t side_by_side;
  };

  /// Those from the cache where `V` makes no difference, so that no code is there twice.
  template <int R>
  static constexpr Panels from_either() {
    constexpr ReadFrom kSeen = is_like_cache(R) ? ReadFrom::kCache : ReadFrom::kEither;
    return &panels<R, kSeen, false>;
  }
  static constexpr bool is_like_cache(int rows) {
    int panels = panels_for(rows, ReadFrom::kCache);
    bool same = panels == panels_for(rows, ReadFrom::kEither);
    for (; same && panels > 0; panels /= 2) {
      same = V::asks(rows, panels, ReadFrom::kEither) == V::asks(rows, panels, ReadFrom::kCache);
    }
    return same;
  }
  /// Of several blocks none has fewer rows than half of the most.
  template <int R>
  static constexpr Panels asking_for_later() {
    constexpr bool kAsks = V::kShareReading && R >= (V::kMaxRows + 1) / 2;
    return &panels<R, ReadFrom::kCache, kAsks>;
  }

  template <int... I>
  static const OfRows* by_rows(std::integer_sequence<int, I...>) {
    static constexpr OfRows kByRows[] = {{&panels<I + 1, ReadFrom::kMemory, false>, from_either<I + 1>(),
                                          &panels<I + 1, ReadFrom::kCache, false>, asking_for_later<I + 1>(),
                                          three_by_two(I + 1) ? 3 : panels_for(I + 1, ReadFrom::kCache)}...};
    return kByRows;
  }
  static const OfRows& of_rows(std::int64_t rows) {
    return by_rows(std::make_integer_sequence<int, V::kMaxRows>())[rows - 1];
  }

  static std::int64_t side_by_side(std::int64_t rows) { return of_rows(rows).side_by_side; }

  /// Puts `steps` steps of `rows` tiles side by side.
  static void interleave(const std::byte* tiles, std::int64_t rows, std::int64_t steps, std::byte* to) {
    if constexpr (requires { &V::interleave; }) {
      V::interleave(tiles, rows, steps, to);
    } else {
      for (std::int64_t s = 0; s < steps; ++s) {
        for (std::int64_t r = 0; r < rows; ++r, to += V::kInputBytes) {
          __builtin_memcpy(to, tiles + r * kTileBytes + s * V::kInputBytes, V::kInputBytes);
        }
      }
    }
  }

  static void pack(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, std::byte* packed) {
    pack_inputs(x, stride, rows, count, packed);
    if constexpr (V::kStepInputs > 1) {
      const std::int64_t steps = (count + V::kStepInputs - 1) / V::kStepInputs;
      const std::int64_t zeros = (kTileSteps - steps % kTileSteps) % kTileSteps;
      const std::int64_t step_bytes = rows * V::kInputBytes;
      __builtin_memset(packed + steps * step_bytes, 0, static_cast<std::size_t>(zeros * step_bytes));
    }
  }

  static void pack_inputs(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count,
                          std::byte* packed) {
    if (rows == 1) {
      V::pack(x, count, packed);
      return;
    }
    constexpr std::int64_t kTileInputs = kTileBytes / V::kInputBytes * V::kStepInputs;
    for (std::int64_t i = 0; i < count; i += kTileInputs) {
      const std::int64_t inputs = count - i < kTileInputs ? count - i : kTileInputs;
      const std::int64_t steps = (inputs + V::kStepInputs - 1) / V::kStepInputs;
      if constexpr (requires { &V::pack_side_by_side; }) {
        V::pack_side_by_side(x + i, stride, rows, inputs, packed);
      } else {
        alignas(kTileBytes) std::byte tiles[V::kMaxRows * kTileBytes];
        for (std::int64_t r = 0; r < rows; ++r) {
          V::pack(x + r * stride + i, inputs, tiles + r * kTileBytes);
        }
        interleave(tiles, rows, steps, packed);
      }
      packed += steps * rows * V::kInputBytes;
    }
  }

  static void run(const MatmulJob& job, std::int64_t begin, std::int64_t end) {
    for_blocks_of_rows(job, begin, end, &side_by_side, [&](const BlockOfRows& of) {
      const OfRows& by = of_rows(of.rows);
      const bool asks = V::kShareReading && of.later_bytes > 0;
      const ReadFrom from = of.first ? job.read_from : ReadFrom::kCache;
      const Panels panels = asks                        ? by.asking_for_later
                            : from == ReadFrom::kMemory ? by.from_memory
                            : from == ReadFrom::kEither ? by.from_either
                                                        : by.from_cache;
      panels(job, of, of.begin, of.new_next ? end : -1);
    });
  }

  static constexpr MatmulKernel kernel() { return kernel_packing(&pack); }
  static constexpr MatmulKernel kernel_packing(decltype(MatmulKernel::pack) packs, std::int64_t x_group_bytes = 0) {
    return {.run = &run,
            .pack = packs,
            .side_by_side = &side_by_side,
            .x_step_bytes = V::kInputBytes,
            .x_group_bytes = x_group_bytes,
            .max_rows = V::kMaxRows,
            .each_packs = V::kEachPacks};
  }
};

}  // namespace specdec
