#pragma once

#include <immintrin.h>

#include <cstdint>

/// Sixteen float lanes in two AVX2 registers; see lanes_scalar.h for what each operation means.
namespace specdec::avx2 {

struct Mask {
  __m256 low, high;
};

struct Lanes {
  static constexpr int kQueryTile = 6;
  static constexpr int kMostUnasked = 0;
  static constexpr int kValueTile = 1;
  static constexpr int kRegisters = 8;

  __m256 low, high;

  Lanes() = default;
  Lanes(__m256 l, __m256 h) : low(l), high(h) {}
  explicit Lanes(float value) : low(_mm256_set1_ps(value)), high(low) {}

  static Mask first(std::int64_t count) {
    const __m256i limit = _mm256_set1_epi32(static_cast<int>(count));
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, index)),
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, _mm256_add_epi32(index, _mm256_set1_epi32(8))))};
  }
  static Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static Lanes load_first(const float* from, std::int64_t count) {
    const Mask mask = first(count);
    return {_mm256_maskload_ps(from, _mm256_castps_si256(mask.low)),
            _mm256_maskload_ps(from + 8, _mm256_castps_si256(mask.high))};
  }
  void store(float* to) const {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  void store_first(float* to, std::int64_t count) const {
    const Mask mask = first(count);
    _mm256_maskstore_ps(to, _mm256_castps_si256(mask.low), low);
    _mm256_maskstore_ps(to + 8, _mm256_castps_si256(mask.high), high);
  }
};

inline Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Lanes operator-(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
inline Mask operator<(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Lanes select(Mask mask, Lanes if_true, Lanes if_false) {
  return {_mm256_blendv_ps(if_false.low, if_true.low, mask.low),
          _mm256_blendv_ps(if_false.high, if_true.high, mask.high)};
}
inline __m256 scale_by_low_bits(__m256 value, __m256 shifter) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(value), _mm256_slli_epi32(_mm256_castps_si256(shifter), 23)));
}
inline Lanes scale_by_low_bits(Lanes value, Lanes shifter) {
  return {scale_by_low_bits(value.low, shifter.low), scale_by_low_bits(value.high, shifter.high)};
}
// VMAXPS gives its second operand unless the first is greater.
inline Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(b.low, a.low), _mm256_max_ps(b.high, a.high)}; }

inline float tree_sum(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float tree_max(Lanes a) {
  const __m256 eight = _mm256_max_ps(a.high, a.low);
  const __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
  const __m128 two = _mm_max_ps(_mm_movehl_ps(four, four), four);
  return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(two), two));
}
inline int find_equal(Lanes a, float value) {
  const __m256 wanted = _mm256_set1_ps(value);
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, wanted, _CMP_EQ_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, wanted, _CMP_EQ_OQ));
  return __builtin_ctz(static_cast<unsigned>(low | high << 8) | 0x10000U);
}

struct DoubleLanes {
  __m256d lane[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};

  void add(Lanes x) {
    lane[0] = _mm256_add_pd(lane[0], _mm256_cvtps_pd(_mm256_castps256_ps128(x.low)));
    lane[1] = _mm256_add_pd(lane[1], _mm256_cvtps_pd(_mm256_extractf128_ps(x.low, 1)));
    lane[2] = _mm256_add_pd(lane[2], _mm256_cvtps_pd(_mm256_castps256_ps128(x.high)));
    lane[3] = _mm256_add_pd(lane[3], _mm256_cvtps_pd(_mm256_extractf128_ps(x.high, 1)));
  }
  double total() const {
    const __m256d four = _mm256_add_pd(_mm256_add_pd(lane[0], lane[2]), _mm256_add_pd(lane[1], lane[3]));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
};

}  // namespace specdec::avx2
