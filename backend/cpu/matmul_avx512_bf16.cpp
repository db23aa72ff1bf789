// Two neighbouring inputs at a time with VDPBF16PS, the second first, which flushes subnormals whatever MXCSR says. For CPUs of
// which has_fast_vdpbf16ps().
#include <immintrin.h>

#include "backend/cpu/matmul_block.h"
#include "backend/cpu/matmul_wide.h"

namespace specdec {
namespace {

template <class Reads>
struct Dot : Reads {
  using Acc = typename Reads::Acc;
  static constexpr std::int64_t kStepInputs = 2;
  static constexpr int kWeightRegisters = 1;
  static constexpr int kInputRegisters = 1;
  /// The first block of sixteen rows takes longer than its weights take to come.
  static constexpr bool kShareReading = false;
  using Weights = __m512i;
  using Input = __m512i;
  static constexpr std::int64_t kInputBytes = 4;

  static Weights load(const std::byte* from) { return _mm512_load_si512(from); }
  /// The compiler does not see that it has been loaded already.
  static Weights load_anew(const std::byte* from) {
    Weights loaded;
    asm volatile("vmovdqa64 (%1), %0" : "=v"(loaded) : "r"(from));
    return loaded;
  }
  static Input broadcast(const std::byte* from) { return _mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(from))); }
  /// Of four rows; each 128 bits of the register have all four.
  static Input broadcast_four(const std::byte* from) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  /// In each 128 bits lane i has what lane (i + kBy) mod 4 had.
  template <int kBy>
  static __m512i turned(__m512i lanes) {
    if constexpr (kBy == 0) return lanes;
    constexpr int kFrom[] = {kBy % 4, (kBy + 1) % 4, (kBy + 2) % 4, (kBy + 3) % 4};
    return _mm512_shuffle_epi32(lanes,
                                static_cast<_MM_PERM_ENUM>(kFrom[0] | kFrom[1] << 2 | kFrom[2] << 4 | kFrom[3] << 6));
  }
  /// The sums of four turns, lane i of turn t being of row i and output (i + t) mod 4 of each four outputs: `row0` to `row3` are left with one row's outputs each.
  static void turn_back(Acc& row0, Acc& row1, Acc& row2, Acc& row3) {
    // Lane o: output o of row (o - t) mod 4.
    const Acc outputs[] = {row0, back<1>(row1), back<2>(row2), back<3>(row3)};
    row0 = one_of_each(outputs[0], outputs[1], outputs[2], outputs[3]);
    row1 = one_of_each(outputs[3], outputs[0], outputs[1], outputs[2]);
    row2 = one_of_each(outputs[2], outputs[3], outputs[0], outputs[1]);
    row3 = one_of_each(outputs[1], outputs[2], outputs[3], outputs[0]);
  }
  template <int kTurn>
  static Acc back(Acc acc) {
    return _mm512_castsi512_ps(turned<4 - kTurn>(_mm512_castps_si512(acc)));
  }
  /// Lane i of each 128 bits is that of the i-th.
  static Acc one_of_each(Acc a, Acc b, Acc c, Acc d) {
    return _mm512_mask_mov_ps(_mm512_mask_mov_ps(a, 0x2222, b), 0xcccc, _mm512_mask_mov_ps(c, 0x8888, d));
  }

  static Acc multiply_add(Acc acc, Weights weights, Input input) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(weights), reinterpret_cast<__m512bh>(input));
  }
  /// Up to 32 inputs of each of several rows, rounded, the rows side by side in each step: squares of four rows and four steps, turned in registers.
  static void pack_side_by_side(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t inputs,
                                std::byte* to) {
    const std::int64_t fours = (rows + 3) / 4;
    __m512i four[4][4];  // 128 bits l of four[f][j]: step 4 l + j of four rows
#pragma GCC unroll 4
    for (std::int64_t f = 0; f < 4; ++f) {
      // In place of rows behind the last one any will do: what comes of them is not stored.
      const auto row = [&](std::int64_t r) { return round(x + (r < rows ? r : f * 4) * stride, inputs); };
      if (f >= fours) {
        for (__m512i& none : four[f]) none = _mm512_setzero_si512();
        continue;
      }
      const __m512i row0 = row(f * 4);
      const __m512i row1 = row(f * 4 + 1);
      const __m512i row2 = row(f * 4 + 2);
      const __m512i row3 = row(f * 4 + 3);
      const __m512i low01 = _mm512_unpacklo_epi32(row0, row1);
      const __m512i high01 = _mm512_unpackhi_epi32(row0, row1);
      const __m512i low23 = _mm512_unpacklo_epi32(row2, row3);
      const __m512i high23 = _mm512_unpackhi_epi32(row2, row3);
      four[f][0] = _mm512_unpacklo_epi64(low01, low23);
      four[f][1] = _mm512_unpackhi_epi64(low01, low23);
      four[f][2] = _mm512_unpacklo_epi64(high01, high23);
      four[f][3] = _mm512_unpackhi_epi64(high01, high23);
    }
    const auto store = [&](std::int64_t step, __m512i of_rows) {
      if (2 * step < inputs) _mm512_mask_storeu_epi32(to + step * rows * kInputBytes, Reads::first(rows), of_rows);
    };
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) {
      const __m512i low01 = _mm512_shuffle_i32x4(four[0][j], four[1][j], 0x44);
      const __m512i high01 = _mm512_shuffle_i32x4(four[0][j], four[1][j], 0xee);
      const __m512i low23 = _mm512_shuffle_i32x4(four[2][j], four[3][j], 0x44);
      const __m512i high23 = _mm512_shuffle_i32x4(four[2][j], four[3][j], 0xee);
      store(j, _mm512_shuffle_i32x4(low01, low23, 0x88));
      store(4 + j, _mm512_shuffle_i32x4(low01, low23, 0xdd));
      store(8 + j, _mm512_shuffle_i32x4(high01, high23, 0x88));
      store(12 + j, _mm512_shuffle_i32x4(high01, high23, 0xdd));
    }
  }
  static __m512i round(const float* x, std::int64_t inputs) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(Reads::first(inputs - 16), x + 16),
                                                         _mm512_maskz_loadu_ps(Reads::first(inputs), x)));
  }

  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    // An odd count ends in a zero: the mask of the store covers the pair, the mask of the load does not.
    for (std::int64_t i = 0; i < count; i += 16) {
      const std::int64_t left = count - i;
      const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(Reads::first(left), x + i));
      _mm256_mask_storeu_epi16(packed + i * 2, Reads::first((left + 1) & ~std::int64_t{1}),
                               reinterpret_cast<__m256i>(rounded));
    }
  }
};

}  // namespace

const MatmulKernel kMatmulVdpbf16 = SkinnyMatmul<Dot<WideTwoSteps>>::kernel();
const MatmulKernel kMatmulVdpbf16OneStream = SkinnyMatmul<Dot<WideOneStream>>::kernel();

}  // namespace specdec
