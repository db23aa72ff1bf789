#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul_block.h"

/// What the kernels with AVX-512 share: the 16 outputs of a panel in one register. As what `V` of SkinnyMatmul is made of, it lives in the
/// unnamed namespace of each file that includes it.
namespace specdec {
namespace {  // NOLINT(google-build-namespaces): see above

struct Wide : Streams {
  static constexpr int kMaxRows = 16;
  static constexpr int kRegisters = 32;
  static constexpr int kAccRegisters = 1;
  using Acc = __m512;

  static Acc zero() { return _mm512_setzero_ps(); }
  static Acc minus_zero() { return _mm512_set1_ps(-0.0F); }
  static Acc add(Acc a, Acc b) { return _mm512_add_ps(a, b); }
  static void store(float* to, Acc acc) { _mm512_storeu_ps(to, acc); }
  static void store_past_caches(float* to, Acc acc) { _mm512_stream_ps(to, acc); }
  static __mmask16 first(std::int64_t count) {
    return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1U << count) - 1);
  }
};

/// For kernels that Zen 4 uses: it reads eight streams a third slower than four, and what is asked for far ahead has room in the second cache (docs/kernels.md,
/// "AVX-512 BF16").
struct WideFewStreams : Wide {
  static constexpr int kMostPanels = 4;
  static constexpr int most_panels(int /*rows*/, ReadFrom /*from*/) { return kMostPanels; }
  /// As many bytes by all panels together: of few panels rows are many, and a step of theirs takes as long. Where rows are few, so that memory is what is waited
  /// for, the core's loads run far ahead by themselves, and what it asks for farther ahead than that is in their way.
  static constexpr Asks asks(int /*rows*/, int panels, ReadFrom from) {
    return {.ahead = panels == kMostPanels && from == ReadFrom::kMemory ? 1024 : 4096 * kMostPanels / panels,
            .into = 2};
  }
};

/// For products that wait for memory nearly as long as they multiply: what is asked for from afar comes into the second cache, and the next lines of each panel from there into the first one.
/// One row from memory has nothing to wait for but memory. What the last cache surely has, few rows need to ask for from near only; of what it half has, their loads must not run ahead too
/// far (docs/kernels.md, "AVX-512 BF16"). Inputs are asked for where they count: of fewer rows there are few, with more it is their products that are waited for, and those of two panels'
/// rows are so many that the weights would wait.
struct WideTwoSteps : WideFewStreams {
  /// What another thread packed comes slowly where that is on another chiplet (docs/kernels.md, "Threads of a rank").
  static constexpr bool kEachPacks = true;
  static constexpr Asks asks(int rows, int panels, ReadFrom from) {
    Asks asks = WideFewStreams::asks(rows, panels, from);
    const bool most = panels == kMostPanels;
    if (from == ReadFrom::kMemory && rows > 1) {
      asks.ahead = most ? 1536 : 16384 / panels;
      asks.near = most ? 256 : 2048 / panels;
      asks.inputs_before_page = most && 4 <= rows && rows <= 6 ? 16 : 0;
    } else if (from == ReadFrom::kEither && most && rows <= 6) {
      if (rows <= 3) {
        asks.loads = 3;
      } else {
        asks.near = 1024;
      }
    } else if (from == ReadFrom::kCache && most && rows <= 3) {
      asks = {.ahead = 512};
    }
    return asks;
  }
};

/// For CPUs of which has_fast_single_stream(): from memory one panel alone is read at the memory's speed, which of several each next one lowers. From farther ahead the more rows there
/// are, since a step of theirs takes as long; from 12 rows on it is their sums that are waited for.
struct WideOneStream : WideFewStreams {
  static constexpr int kManyRows = 12;
  static constexpr int most_panels(int rows, ReadFrom from) {
    return from == ReadFrom::kMemory && rows < kManyRows ? 1 : kMostPanels;
  }
  /// Into the first cache, which holds 48 KB there. The inputs of sixteen rows are more than that, and are read as fast as the weights of their one panel. Where memory is waited for
  /// they are not asked for: they would wait behind what is asked of it.
  static constexpr Asks asks(int rows, int panels, ReadFrom from) {
    if (from == ReadFrom::kMemory && panels == 1) return {.ahead = rows < 5 ? 8192 : 12288, .page_starts = 32768};
    if (rows == kMaxRows) return {.ahead = 8192, .into = 2, .near = 2048, .inputs = 1024};
    return {.ahead = WideFewStreams::asks(rows, panels, ReadFrom::kCache).ahead};
  }
};

/// For kernels of int8 (matmul_int8.h), without the products.
struct WideInt8 : Wide {
  /// A group's integers, and the slice's sum beside them: with more panels one of the two is in memory at each step, and 12 rows take as long as 20.
  static constexpr int kAccRegisters = 2;
  static constexpr std::int64_t kInputBytes = kInt8StepInputs;
  static constexpr bool kShareReading = false;  // no gain that shows: half the bytes of bf16
  /// Of 32-bit lanes: of __m512i, whose lanes have 64, GCC 12 copies each sum before and after a step.
  using Dots = __v16si;
  using Input = __m512i;

  static Input broadcast(const std::byte* from) { return _mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(from))); }
  static void put(const std::int8_t* four, std::byte* to) { __builtin_memcpy(to, four, kInt8StepInputs); }
  static Acc load_scales(const std::byte* from) { return _mm512_load_ps(from); }
  static Acc add_scaled(Acc sum, Dots dots, float x_scale, Acc scales) {
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(dots)), _mm512_set1_ps(x_scale)),
                           scales, sum);
  }

  static __m512 load_first(const float* from, std::int64_t count) { return _mm512_maskz_loadu_ps(first(count), from); }

  /// quantise_group() of `count` <= 128 values; what is left of a vector of 16 is zero.
  static float quantise(const float* x, std::int64_t count, std::int8_t* integers) {
    __m512i largest = _mm512_setzero_si512();
    for (std::int64_t i = 0; i < count; i += 16) {
      const __m512i value = _mm512_castps_si512(load_first(x + i, count - i));
      largest = _mm512_max_epi32(largest, _mm512_and_si512(value, _mm512_set1_epi32(0x7fffffff)));
    }
    const std::int32_t bits = _mm512_reduce_max_epi32(largest);
    const float scale = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits))) / 127.0F;
    const bool finite = bits < 0x7f800000;
    if (!finite || !(scale >= __FLT_MIN__)) {
      __builtin_memset(integers, 0, kInt8GroupSteps * kInt8StepInputs);
      return finite ? 0.0F : __builtin_nanf("");
    }
    const __m512 scales = _mm512_set1_ps(scale);
    for (std::int64_t i = 0; i < count; i += 16) {
      const __m512i rounded = _mm512_cvtps_epi32(_mm512_div_ps(load_first(x + i, count - i), scales));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(integers + i), _mm512_cvtepi32_epi8(rounded));
    }
    return scale;
  }
};

}  // namespace
}  // namespace specdec
