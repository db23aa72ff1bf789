// TDPBF16PS, 16 rows times 16 outputs over 32 inputs at a time.
#include "backend/cpu/matmul_tiles_bf16.h"
#include "backend/cpu/tiles_amx.h"

namespace specdec {
namespace {

struct AmxBf16 : Amx {
  template <int kSum, int kInputs, int kWeights>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kInputs), "i"(kWeights));
  }
  static void round(const float* x, std::int64_t count, std::byte* to) {
    const auto low = static_cast<__mmask16>(count >= 16 ? 0xffff : (1U << count) - 1);
    const auto high = static_cast<__mmask16>(count >= 32 ? 0xffff : count <= 16 ? 0 : (1U << (count - 16)) - 1);
    auto* halves = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(halves, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(low, x))));
    _mm256_storeu_si256(halves + 1, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(high, x + 16))));
  }
};

}  // namespace

constinit const MatmulKernel kMatmulAmxBf16 = TileMatmul<Bf16OnTiles<AmxBf16>>::kernel();

}  // namespace specdec
