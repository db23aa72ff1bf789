// AVX-512 without BF16: a bf16 is widened with a shift or a mask, exactly, and multiplied in f32.
#include <immintrin.h>

#include "backend/cpu/matmul_block.h"
#include "backend/cpu/matmul_int8.h"
#include "backend/cpu/matmul_wide.h"

namespace specdec {
namespace {

struct WideF32 : WideFewStreams {
  static constexpr bool kMayHalve = true;
  static constexpr std::int64_t kStepInputs = 1;
  static constexpr int kWeightRegisters = 1;
  static constexpr int kInputRegisters = 1;
  using Weights = __m512;
  using Input = __m512;
  static constexpr std::int64_t kInputBytes = 4;

  static Weights load(const std::byte* from) { return _mm512_load_ps(from); }
  static Input broadcast(const std::byte* from) { return _mm512_set1_ps(*reinterpret_cast<const float*>(from)); }
  static Acc multiply_add(Acc acc, Weights weights, Input input) { return _mm512_fmadd_ps(weights, input, acc); }
  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    __builtin_memcpy(packed, x, static_cast<std::size_t>(count) * sizeof(float));
  }
};

struct WideBf16 : Wide {
  static constexpr std::int64_t kStepInputs = 2;
  /// From fourteen rows on the registers hold one panel alone, which is not read fast enough from so near.
  static constexpr Asks asks(int rows, int panels, ReadFrom from) {
    return panels == 1 ? Asks{.ahead = 8192, .into = 2} : Wide::asks(rows, panels, from);
  }
  static constexpr int kWeightRegisters = 2;
  static constexpr int kInputRegisters = 2;
  struct Weights {
    __m512 even;
    __m512 odd;
  };
  struct Input {
    __m512 even;
    __m512 odd;
  };
  static constexpr std::int64_t kInputBytes = 8;
  /// As many bytes as x itself has, which no thread would have to fetch otherwise; of less, x is what takes longer to come.
  static constexpr bool kEachPacks = true;

  static Weights load(const std::byte* from) {
    const __m512i pairs = _mm512_load_si512(from);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))))};
  }
  static Input broadcast(const std::byte* from) {
    const auto* pair = reinterpret_cast<const float*>(from);
    return {_mm512_set1_ps(pair[0]), _mm512_set1_ps(pair[1])};
  }
  static Acc multiply_add(Acc acc, const Weights& weights, const Input& input) {
    return _mm512_fmadd_ps(weights.even, input.even, _mm512_fmadd_ps(weights.odd, input.odd, acc));
  }

  /// Eight rows at a time are a square of eight-byte steps that is turned over.
  static void interleave(const std::byte* tiles, std::int64_t rows, std::int64_t steps, std::byte* to) {
    for (std::int64_t first = 0; first < rows; first += 8) {
      const std::int64_t some = rows - first < 8 ? rows - first : 8;
      __m512i pair[8];  // lane k of pair[2 j + o]: step 2 k + o of rows 2 j and 2 j + 1
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < 4; ++j) {
        // In place of rows behind the last one any row will do: what comes of them is not stored.
        const __m512i even = tile(tiles, first + (2 * j < some ? 2 * j : 0));
        const __m512i odd = tile(tiles, first + (2 * j + 1 < some ? 2 * j + 1 : 0));
        pair[2 * j] = _mm512_unpacklo_epi64(even, odd);
        pair[2 * j + 1] = _mm512_unpackhi_epi64(even, odd);
      }
      __m512i step[8];
#pragma GCC unroll 2
      for (int o = 0; o < 2; ++o) {
        const __m512i low_0123 = _mm512_shuffle_i64x2(pair[o], pair[2 + o], 0x44);
        const __m512i high_0123 = _mm512_shuffle_i64x2(pair[o], pair[2 + o], 0xee);
        const __m512i low_4567 = _mm512_shuffle_i64x2(pair[4 + o], pair[6 + o], 0x44);
        const __m512i high_4567 = _mm512_shuffle_i64x2(pair[4 + o], pair[6 + o], 0xee);
        step[o] = _mm512_shuffle_i64x2(low_0123, low_4567, 0x88);
        step[2 + o] = _mm512_shuffle_i64x2(low_0123, low_4567, 0xdd);
        step[4 + o] = _mm512_shuffle_i64x2(high_0123, high_4567, 0x88);
        step[6 + o] = _mm512_shuffle_i64x2(high_0123, high_4567, 0xdd);
      }
      const auto mask = static_cast<__mmask8>((1U << some) - 1);
#pragma GCC unroll 8
      for (std::int64_t s = 0; s < 8; ++s) {
        if (s < steps) {
          _mm512_mask_storeu_epi64(to + (s * rows + first) * kInputBytes, mask, step[s]);
        }
      }
    }
  }
  static __m512i tile(const std::byte* tiles, std::int64_t row) { return _mm512_load_si512(tiles + row * kTileBytes); }

  /// float_to_bf16 and back, lane by lane.
  static __m512 round(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
    rounded = _mm512_mask_and_epi32(rounded, tiny, bits, _mm512_set1_epi32(static_cast<int>(0x80000000U)));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }

  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    // An odd count ends in a zero: the mask of the store covers the pair, the mask of the load does not.
    for (std::int64_t i = 0; i < count; i += 16) {
      const std::int64_t left = count - i;
      _mm512_mask_storeu_ps(packed + i * 4, first((left + 1) & ~std::int64_t{1}),
                            round(_mm512_maskz_loadu_ps(first(left), x + i)));
    }
  }
};

/// For CPUs without AVX512-VNNI; as PairInt8 of AVX2, with a mask for the signs.
struct WideInt8Pairs : WideInt8 {
  static constexpr int kWeightRegisters = 1;
  static constexpr int kInputRegisters = 4;  // zero, ones, and the input with and without the signs
  static constexpr std::int32_t kOffset = 0;
  struct Weights {
    __m512i magnitude;
    __mmask64 negative;
  };

  static Dots start(std::int32_t /*start*/) { return Dots{}; }
  static Weights load(const std::byte* from) {
    const __m512i weights = _mm512_load_si512(from);
    return {_mm512_abs_epi8(weights), _mm512_movepi8_mask(weights)};
  }
  static Dots multiply_add(Dots sum, const Weights& weights, Input input) {
    const __m512i turned = _mm512_mask_sub_epi8(input, weights.negative, _mm512_setzero_si512(), input);
    const __m512i pairs = _mm512_maddubs_epi16(weights.magnitude, turned);
    return reinterpret_cast<Dots>(
        _mm512_add_epi32(reinterpret_cast<__m512i>(sum), _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))));
  }
};

}  // namespace

const MatmulKernel kMatmulAvx512F32 = SkinnyMatmul<WideF32>::kernel();
const MatmulKernel kMatmulAvx512Bf16 = SkinnyMatmul<WideBf16>::kernel();
const MatmulKernel kMatmulAvx512Int8 = make_int8_kernel<WideInt8Pairs>();

}  // namespace specdec
