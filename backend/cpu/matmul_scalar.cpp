// Portable code in the shape of the vector kernels: what runs where there is no AVX2.
#include <cmath>
#include <cstring>

#include "backend/cpu/matmul_block.h"
#include "backend/cpu/matmul_int8.h"
#include "backend/int8.h"

namespace specdec {
namespace {

struct Lanes : Streams {
  static constexpr int kMaxRows = 4;
  static constexpr int kRegisters = 0;
  static constexpr int kAccRegisters = 1;
  static constexpr int kWeightRegisters = 1;
  static constexpr int kInputRegisters = 1;
  struct Acc {
    float lane[16];
  };

  static Acc zero() { return {}; }
  static Acc minus_zero() {
    Acc acc;
    for (float& lane : acc.lane) {
      lane = -0.0F;
    }
    return acc;
  }
  static Acc add(const Acc& a, const Acc& b) {
    Acc acc;
    for (int i = 0; i < 16; ++i) {
      acc.lane[i] = a.lane[i] + b.lane[i];
    }
    return acc;
  }
  static void store(float* to, const Acc& acc) { std::memcpy(to, acc.lane, sizeof acc.lane); }
};

struct LanesF32 : Lanes {
  static constexpr std::int64_t kStepInputs = 1;
  struct Weights {
    float lane[16];
  };
  using Input = float;
  static constexpr std::int64_t kInputBytes = 4;

  static Weights load(const std::byte* from) {
    Weights weights;
    std::memcpy(weights.lane, from, sizeof weights.lane);
    return weights;
  }
  static Input broadcast(const std::byte* from) {
    Input input = 0;
    std::memcpy(&input, from, sizeof input);
    return input;
  }
  static Acc multiply_add(const Acc& sum, const Weights& weights, Input input) {
    Acc acc;
    for (int i = 0; i < 16; ++i) {
      acc.lane[i] = sum.lane[i] + weights.lane[i] * input;
    }
    return acc;
  }
  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    std::memcpy(packed, x, static_cast<std::size_t>(count) * sizeof(float));
  }
};

struct LanesBf16 : Lanes {
  static constexpr std::int64_t kStepInputs = 2;
  struct Weights {
    std::uint16_t lane[16][2];
  };
  struct Input {
    float even;
    float odd;
  };
  static constexpr std::int64_t kInputBytes = 8;

  static Weights load(const std::byte* from) {
    Weights weights;
    std::memcpy(weights.lane, from, sizeof weights.lane);
    return weights;
  }
  static Input broadcast(const std::byte* from) {
    Input input;
    std::memcpy(&input, from, sizeof input);
    return input;
  }
  static Acc multiply_add(const Acc& sum, const Weights& weights, const Input& input) {
    Acc acc;
    for (int i = 0; i < 16; ++i) {
      const float odd = sum.lane[i] + bf16_to_float(weights.lane[i][1]) * input.odd;
      acc.lane[i] = odd + bf16_to_float(weights.lane[i][0]) * input.even;
    }
    return acc;
  }
  static void pack(const float* x, std::int64_t count, std::byte* packed) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float rounded = bf16_to_float(float_to_bf16(x[i]));
      std::memcpy(packed + i * 4, &rounded, sizeof rounded);
    }
    if (count % 2 != 0) {
      std::memset(packed + count * 4, 0, 4);
    }
  }
};

struct LanesInt8 : Lanes {
  static constexpr std::int64_t kInputBytes = kInt8StepInputs;
  static constexpr std::int32_t kOffset = 0;
  struct Dots {
    std::int32_t lane[16];
  };
  struct Weights {
    std::int8_t lane[16][4];
  };
  struct Input {
    std::int8_t lane[4];
  };

  static Dots start(std::int32_t /*start*/) { return {}; }
  static Weights load(const std::byte* from) {
    Weights weights;
    std::memcpy(&weights, from, sizeof weights);
    return weights;
  }
  static Input broadcast(const std::byte* from) {
    Input input;
    std::memcpy(&input, from, sizeof input);
    return input;
  }
  static void put(const std::int8_t* four, std::byte* to) { __builtin_memcpy(to, four, kInt8StepInputs); }
  static Dots multiply_add(const Dots& sum, const Weights& weights, Input input) {
    Dots dots;
    for (int i = 0; i < 16; ++i) {
      dots.lane[i] = sum.lane[i] + weights.lane[i][0] * input.lane[0] + weights.lane[i][1] * input.lane[1] +
                     weights.lane[i][2] * input.lane[2] + weights.lane[i][3] * input.lane[3];
    }
    return dots;
  }
  static Acc load_scales(const std::byte* from) {
    Acc scales;
    std::memcpy(&scales, from, sizeof scales);
    return scales;
  }
  static Acc add_scaled(const Acc& sum, const Dots& dots, float x_scale, const Acc& scales) {
    Acc acc;
    for (int i = 0; i < 16; ++i) {
      // Fused as in the vector kernels, by the C library where the instruction is not there.
      acc.lane[i] = std::fma(static_cast<float>(dots.lane[i]) * x_scale, scales.lane[i], sum.lane[i]);
    }
    return acc;
  }
  static float quantise(const float* x, std::int64_t count, std::int8_t* integers) {
    std::memset(integers, 0, kInt8Group);
    return quantise_group({x, static_cast<std::size_t>(count)}, integers);
  }
};

}  // namespace

const MatmulKernel kMatmulScalarF32 = SkinnyMatmul<LanesF32>::kernel();
const MatmulKernel kMatmulScalarBf16 = SkinnyMatmul<LanesBf16>::kernel();
const MatmulKernel kMatmulScalarInt8 = make_int8_kernel<LanesInt8>();

}  // namespace specdec
