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
  /// Sixteen rows are bound by loads where memory is quick (docs/kernels.md, "AVX-512 BF16"), and what is asked for is one.
  static constexpr bool kShareReading = false;
  using Weights = __m512i;
  using Input = __m512i;
  static constexpr std::int64_t kInputBytes = 4;

  static Weights load(const std::byte* from) { return _mm512_load_si512(from); }
  static Input broadcast(const std::byte* from) { return _mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(from))); }
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
