#pragma once

#include <immintrin.h>

#include <cstdint>

/// Sixteen float lanes in one AVX-512 register; see lanes_scalar.h for what each operation means.
namespace specdec::avx512 {

struct Mask {
  __mmask16 bits;
};

struct Lanes {
  static constexpr int kQueryTile = 6;
  static constexpr int kMostUnasked = 2;
  static constexpr int kValueTile = 2;
  static constexpr int kRegisters = 32;

  __m512 v;

  Lanes() = default;
  Lanes(__m512 value) : v(value) {}  // NOLINT(google-explicit-constructor): the same thing, named
  explicit Lanes(float value) : v(_mm512_set1_ps(value)) {}

  static Mask first(std::int64_t count) {
    return {static_cast<__mmask16>(count >= 16 ? 0xffffU : (1U << static_cast<unsigned>(count)) - 1U)};
  }
  static Lanes load(const float* from) { return _mm512_loadu_ps(from); }
  static Lanes load_first(const float* from, std::int64_t count) {
    return _mm512_maskz_loadu_ps(first(count).bits, from);
  }
  void store(float* to) const { _mm512_storeu_ps(to, v); }
  void store_past_caches(float* to) const { _mm512_stream_ps(to, v); }
  void store_first(float* to, std::int64_t count) const { _mm512_mask_storeu_ps(to, first(count).bits, v); }
};

inline Lanes operator+(Lanes a, Lanes b) { return _mm512_add_ps(a.v, b.v); }
inline Lanes operator-(Lanes a, Lanes b) { return _mm512_sub_ps(a.v, b.v); }
inline Lanes operator*(Lanes a, Lanes b) { return _mm512_mul_ps(a.v, b.v); }
inline Lanes operator/(Lanes a, Lanes b) { return _mm512_div_ps(a.v, b.v); }
inline Lanes operator-(Lanes a) { return _mm512_xor_ps(a.v, _mm512_set1_ps(-0.0F)); }
inline Mask operator<(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }
inline Lanes select(Mask mask, Lanes if_true, Lanes if_false) {
  return _mm512_mask_blend_ps(mask.bits, if_false.v, if_true.v);
}
inline Lanes scale_by_low_bits(Lanes value, Lanes shifter) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(value.v), _mm512_slli_epi32(_mm512_castps_si512(shifter.v), 23)));
}
// VMAXPS gives its second operand unless the first is greater.
inline Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(b.v, a.v); }

inline float tree_sum(Lanes a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float tree_max(Lanes a) {
  const __m256 eight = _mm256_max_ps(_mm512_extractf32x8_ps(a.v, 1), _mm512_castps512_ps256(a.v));
  const __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
  const __m128 two = _mm_max_ps(_mm_movehl_ps(four, four), four);
  return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(two), two));
}
inline int find_equal(Lanes a, float value) {
  const unsigned equal = _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(value), _CMP_EQ_OQ);
  return __builtin_ctz(equal | 0x10000U);
}

struct DoubleLanes {
  __m512d lane[2] = {_mm512_setzero_pd(), _mm512_setzero_pd()};

  void add(Lanes x) {
    lane[0] = _mm512_add_pd(lane[0], _mm512_cvtps_pd(_mm512_castps512_ps256(x.v)));
    lane[1] = _mm512_add_pd(lane[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1)));
  }
  double total() const {
    const __m512d eight = _mm512_add_pd(lane[0], lane[1]);
    const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
};

}  // namespace specdec::avx512
