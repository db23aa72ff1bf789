// TDPBSSD, 16 rows times 16 outputs over 64 inputs at a time.
#include "backend/cpu/matmul_tiles_int8.h"
#include "backend/cpu/matmul_wide.h"
#include "backend/cpu/tiles_amx.h"

namespace specdec {
namespace {

struct AmxInt8 : Amx {
  template <int kSum, int kInputs, int kWeights>
  static void dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kInputs), "i"(kWeights));
  }
  static float quantise(const float* x, std::int64_t count, std::int8_t* to) {
    constexpr std::int64_t kGroup = kInt8GroupSteps * kInt8StepInputs;
    if (count < kGroup) __builtin_memset(to, 0, kGroup);
    return WideInt8::quantise(x, count, to);
  }
  template <bool kFirst>
  static void add_scaled(const std::int32_t* integers, const float* x_scales, const std::byte* scales,
                         std::int64_t rows, float* sums) {
    const __m512 of_weights = WideInt8::load_scales(scales);
    for (std::int64_t r = 0; r < rows; ++r, integers += kPanelOutputs, sums += kPanelOutputs) {
      const __m512 sum = kFirst ? _mm512_setzero_ps() : _mm512_load_ps(sums);
      const auto dots = reinterpret_cast<WideInt8::Dots>(_mm512_load_si512(integers));
      _mm512_store_ps(sums, WideInt8::add_scaled(sum, dots, x_scales[r], of_weights));
    }
  }
};

}  // namespace

constinit const MatmulKernel kMatmulAmxInt8 = TileMatmul<Int8OnTiles<AmxInt8>>::kernel();

}  // namespace specdec
