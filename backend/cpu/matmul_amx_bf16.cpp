// TDPBF16PS, 16 rows times 16 outputs over 32 inputs at a time.
#include <immintrin.h>

#include "backend/cpu/matmul_tiles.h"

namespace specdec {
namespace {

/// In assembly: the compiler's macros want a tile's number spelled out, where ours come from templates, and do not say what memory they read.
struct Amx {
  static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const std::byte* from) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(kStepBytes), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(float* to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(kStepBytes), "i"(kTile) : "memory");
  }
  template <int kSum, int kInputs, int kWeights>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kInputs), "i"(kWeights));
  }
  /// Volatile: of a function of nothing but __builtin_prefetch GCC 12 finds that it has no effect, and drops its calls.
  static void prefetch(const std::byte* line) { asm volatile("prefetcht0 %0" : : "m"(*line)); }
  static void round(const float* x, std::int64_t count, std::byte* to) {
    const auto low = static_cast<__mmask16>(count >= 16 ? 0xffff : (1U << count) - 1);
    const auto high = static_cast<__mmask16>(count >= 32 ? 0xffff : count <= 16 ? 0 : (1U << (count - 16)) - 1);
    auto* halves = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(halves, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(low, x))));
    _mm256_storeu_si256(halves + 1, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(high, x + 16))));
  }
};

}  // namespace

constinit const MatmulKernel kMatmulAmxBf16 = TileMatmul<Amx>::kernel();

}  // namespace specdec
