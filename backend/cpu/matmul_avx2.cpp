// AVX2 and FMA: the 16 outputs of a panel in two registers; a bf16 is widened with a shift or a mask, exactly.
#include <immintrin.h>

#include "backend/cpu/matmul_block.h"
#include "backend/cpu/matmul_int8.h"

namespace specdec {
namespace {

struct Pair : Streams {
  static constexpr int kMaxRows = 6;
  static constexpr int kRegisters = 16;
  static constexpr int kAccRegisters = 2;
  /// Of several panels nearer: on Zen 3 requests 2 KB ahead of four panels hold back the loads behind them (docs/kernels.md, "AVX2").
  static constexpr Asks asks(int /*rows*/, int panels, ReadFrom /*from*/) {
    return {.ahead = panels > 1 ? 1280 : 2048};
  }
  struct Acc {
    __m256 low;
    __m256 high;
  };

  static Acc zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Acc minus_zero() { return {_mm256_set1_ps(-0.0F), _mm256_set1_ps(-0.0F)}; }
  static Acc add(Acc a, Acc b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static void store(float* to, Acc acc) {
    _mm256_storeu_ps(to, acc.low);
    _mm256_storeu_ps(to + 8, acc.high);
  }
};

struct PairF32 : Pair {
  static constexpr std::int64_t kStepInputs = 1;
  static constexpr int kParts = 1;
  static constexpr bool kInputsAnew = true;
  static constexpr int kWeightRegisters = 2;
  static constexpr int kInputRegisters = 1;
  using Weights = Acc;
  using Input = __m256;
  static constexpr std::int64_t kInputBytes = 4;

  static Weights load(const std::byte* from, int /*part*/) {
    const auto* weights = reinterpret_cast<const float*>(from);
    return {_mm256_load_ps(weights), _mm256_load_ps(weights + 8)};
  }
  static Input broadcast(const std::byte* from, int /*part*/) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(from));
  }
  static Acc multiply_add(Acc acc, Weights weights, Input input) {
    return {_mm256_fmadd_ps(weights.low, input, acc.low), _mm256_fmadd_ps(weights.high, input, acc.high)};
  }
  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    __builtin_memcpy(packed, x, static_cast<std::size_t>(count) * sizeof(float));
  }
};

alignas(32) constexpr std::uint32_t kOdd[8] = {0xffff0000U, 0xffff0000U, 0xffff0000U, 0xffff0000U,
                                               0xffff0000U, 0xffff0000U, 0xffff0000U, 0xffff0000U};

struct PairBf16 : Pair {
  static constexpr std::int64_t kStepInputs = 2;
  /// The second inputs of the pairs, then the first: the order in which a chain adds them up.
  static constexpr int kParts = 2;
  static constexpr bool kInputsAnew = true;
  static constexpr int kWeightRegisters = 2;
  static constexpr int kInputRegisters = 1;
  using Weights = Acc;
  using Input = __m256;
  static constexpr std::int64_t kInputBytes = 8;

  static __m256 even(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static __m256 odd(__m256i pairs) {
    // From memory, so that the mask does not take the place of a sum.
    asm("vpand %1, %0, %0" : "+x"(pairs) : "m"(kOdd));
    return _mm256_castsi256_ps(pairs);
  }
  static Weights load(const std::byte* from, int part) {
    asm volatile("" : "+r"(from));  // read anew for each part: kept, the pairs would take the place of two sums
    const auto* weights = reinterpret_cast<const __m256i*>(from);
    const __m256i low = _mm256_load_si256(weights);
    const __m256i high = _mm256_load_si256(weights + 1);
    return part == 0 ? Weights{odd(low), odd(high)} : Weights{even(low), even(high)};
  }
  static Input broadcast(const std::byte* from, int part) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(from) + (part == 0 ? 1 : 0));
  }
  static Acc multiply_add(Acc acc, Weights weights, Input input) {
    return {_mm256_fmadd_ps(weights.low, input, acc.low), _mm256_fmadd_ps(weights.high, input, acc.high)};
  }

  /// float_to_bf16 and back, lane by lane.
  static __m256 round(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i ones = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(ones, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
    const __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
    const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000U)));
    rounded = _mm256_blendv_epi8(rounded, sign, tiny);
    return odd(rounded);
  }

  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    auto* to = reinterpret_cast<float*>(packed);
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(to + i, round(_mm256_loadu_ps(x + i)));
    }
    if (i < count) {
      alignas(32) float tail[8] = {};
      for (std::int64_t k = i; k < count; ++k) {
        tail[k - i] = x[k];
      }
      _mm256_store_ps(tail, round(_mm256_load_ps(tail)));
      // An odd count ends in a zero, which the tail has.
      for (std::int64_t k = i; k < count + count % 2; ++k) {
        to[k] = tail[k - i];
      }
    }
  }
};

alignas(32) constexpr std::int16_t kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

struct PairInt8 : Pair {
  /// The outputs of one register, then those of the other.
  static constexpr int kParts = 2;
  static constexpr int kWeightRegisters = 2;
  static constexpr int kInputRegisters = 2;
  static constexpr std::int64_t kInputBytes = kInt8StepInputs;
  static constexpr std::int32_t kOffset = 0;
  struct Dots {
    __m256i part[2];
  };
  /// One factor of VPMADDUBSW has no sign, so w * x is taken as |w| * (sign of w * x). Two of these, 2 * 127 * 127, do not saturate.
  struct Weights {
    __m256i sign;
    __m256i magnitude;
    int part;
  };
  using Input = __m256i;

  static Dots start(std::int32_t /*start*/) { return {{_mm256_setzero_si256(), _mm256_setzero_si256()}}; }
  static Weights load(const std::byte* from, int part) {
    const __m256i weights = _mm256_load_si256(reinterpret_cast<const __m256i*>(from) + part);
    return {weights, _mm256_abs_epi8(weights), part};
  }
  static Input broadcast(const std::byte* from, int /*part*/) {
    return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(from)));
  }
  static Dots multiply_add(Dots sum, const Weights& weights, Input input) {
    __m256i pairs = _mm256_maddubs_epi16(weights.magnitude, _mm256_sign_epi8(input, weights.sign));
    // From memory, so that ones do not take the place of a sum.
    asm("vpmaddwd %1, %0, %0" : "+x"(pairs) : "m"(kOnes));
    sum.part[weights.part] = _mm256_add_epi32(sum.part[weights.part], pairs);
    return sum;
  }
  static void put(const std::int8_t* four, std::byte* to) { __builtin_memcpy(to, four, kInt8StepInputs); }
  static Acc load_scales(const std::byte* from) {
    const auto* scales = reinterpret_cast<const float*>(from);
    return {_mm256_load_ps(scales), _mm256_load_ps(scales + 8)};
  }
  static Acc add_scaled(Acc sum, Dots dots, float x_scale, Acc scales) {
    const __m256 scale = _mm256_set1_ps(x_scale);
    return {_mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dots.part[0]), scale), scales.low, sum.low),
            _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dots.part[1]), scale), scales.high, sum.high)};
  }

  /// quantise_group() of `count` <= 128 values; what is left of a vector of 32 is zero.
  static float quantise(const float* x, std::int64_t count, std::int8_t* integers) {
    alignas(32) float padded[32] = {};
    __builtin_memcpy(padded, x + count / 32 * 32, static_cast<std::size_t>(count % 32) * sizeof(float));
    const auto eight = [&](std::int64_t i) {
      return _mm256_loadu_ps((i / 32 + 1) * 32 <= count ? x + i : padded + i % 32);
    };
    __m256i largest = _mm256_setzero_si256();
    for (std::int64_t i = 0; i < count; i += 8) {
      const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(eight(i)), _mm256_set1_epi32(0x7fffffff));
      largest = _mm256_max_epi32(largest, magnitude);
    }
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    const std::int32_t bits = _mm_cvtsi128_si32(four);
    const float scale = _mm_cvtss_f32(_mm_castsi128_ps(four)) / 127.0F;
    const bool finite = bits < 0x7f800000;
    if (!finite || !(scale >= __FLT_MIN__)) {
      __builtin_memset(integers, 0, 128);
      return finite ? 0.0F : __builtin_nanf("");
    }
    const __m256 scales = _mm256_set1_ps(scale);
    for (std::int64_t i = 0; i < count; i += 32) {
      __m256i eights[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        eights[k] = _mm256_cvtps_epi32(_mm256_div_ps(eight(i + 8 * k), scales));
      }
      const __m256i low = _mm256_packs_epi32(eights[0], eights[1]);
      const __m256i high = _mm256_packs_epi32(eights[2], eights[3]);
      // Packing works within halves of the register: fours 0 2 4 6 1 3 5 7.
      const __m256i bytes =
          _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      _mm256_store_si256(reinterpret_cast<__m256i*>(integers + i), bytes);
    }
    return scale;
  }
};

}  // namespace

const MatmulKernel kMatmulAvx2F32 = SkinnyMatmul<PairF32>::kernel();
const MatmulKernel kMatmulAvx2Bf16 = SkinnyMatmul<PairBf16>::kernel();
const MatmulKernel kMatmulAvx2Int8 = make_int8_kernel<PairInt8>();

}  // namespace specdec
