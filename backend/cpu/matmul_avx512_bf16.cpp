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
  /// What is asked for takes the place of a load of weights or inputs (docs/kernels.md, "AVX-512 BF16").
  static constexpr bool kShareReading = false;
  using Weights = __m512i;
  using Input = __m512i;
  static constexpr std::int64_t kInputBytes = 4;

  static Weights load(const std::byte* from) { return _mm512_load_si512(from); }
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
  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    // An odd count ends in a zero: the mask of the store covers the pair, the mask of the load does not.
    for (std::int64_t i = 0; i < count; i += 16) {
      const std::int64_t left = count - i;
      const auto loaded = static_cast<__mmask16>(left >= 16 ? 0xffff : (1U << left) - 1);
      const auto stored = static_cast<__mmask16>(left >= 16 ? 0xffff : (1U << ((left + 1) & ~std::int64_t{1})) - 1);
      const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(loaded, x + i));
      _mm256_mask_storeu_epi16(packed + i * 2, stored, reinterpret_cast<__m256i>(rounded));
    }
  }
};

}  // namespace

const MatmulKernel kMatmulVdpbf16 = SkinnyMatmul<Dot<WideFewStreams>>::kernel();
const MatmulKernel kMatmulVdpbf16OneStream = SkinnyMatmul<Dot<WideOneStream>>::kernel();

}  // namespace specdec
