// int8 with VPDPBUSD: four products of an output in one instruction, which takes the weights without sign, larger by 128; a row's sum starts
// with what that adds too much.
#include <immintrin.h>

#include "backend/cpu/matmul_int8.h"
#include "backend/cpu/matmul_wide.h"

namespace specdec {
namespace {

struct WideInt8Fours : WideInt8 {
  // A step is four instructions' worth for each row, and the chain of one panel waits for memory already; of two streams Zen 4 reads less.
  static constexpr int most_panels(int /*rows*/, ReadFrom /*from*/) { return 1; }
  static constexpr int kWeightRegisters = 1;
  static constexpr int kInputRegisters = 2;  // and what is added to the weights
  static constexpr std::int32_t kOffset = 128;
  using Weights = __m512i;

  static Dots start(std::int32_t start) { return reinterpret_cast<Dots>(_mm512_set1_epi32(start)); }
  static Weights load(const std::byte* from) {
    return _mm512_xor_si512(_mm512_load_si512(from), _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  static Dots multiply_add(Dots sum, Weights weights, Input input) {
    return reinterpret_cast<Dots>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), weights, input));
  }
};

/// For Zen 4: one panel is all that is ahead, where bf16 has four. Few rows ask for all of it into the first cache, more of them for what is far into the second (docs/kernels.md, "int8").
struct WideInt8TwoSteps : WideInt8Fours {
  static constexpr Asks asks(int rows, int panels, ReadFrom from) {
    if (from != ReadFrom::kMemory) return WideInt8Fours::asks(rows, panels, from);
    if (rows < 3) return {.ahead = 8192, .page_starts = 16384};
    return {.ahead = 16384, .into = 2, .page_starts = 32768, .near = 3584};
  }
};

}  // namespace

const MatmulKernel kMatmulVnniInt8 = make_int8_kernel<WideInt8Fours>();
const MatmulKernel kMatmulVnniInt8TwoSteps = make_int8_kernel<WideInt8TwoSteps>();

}  // namespace specdec
