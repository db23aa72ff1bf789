#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/matmul.h"
#include "tests/support/emulated_tiles.h"
#include "tests/unit/backend_fixture.h"

/// Data and an independent account of the sum that Backend::matmul promises, for the tests of the kernels.
namespace specdec::matmul_test {

inline constexpr DType kPackedTypes[] = {DType::kF32, DType::kBF16, DType::kInt8};
/// Those that round each number by itself and sum them one by one; of the other one there is matmul_int8_test.cpp.
inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kBF16};

inline std::string case_name(Isa isa, DType dtype) {
  return std::string(name_of(isa)) + " " + std::string(name_of(dtype));
}

/// How a kernel sums a slice: inputs in turn with separate or fused multiply-adds, or by tiles of 32 inputs, be it as the manual says or as this CPU does;
/// or by the groups of int8.
enum class Order : std::uint8_t { kSeparate, kFused, kEmulatedTiles, kTiles, kGroups };

struct Kernel {
  std::string name;
  DType dtype;
  const MatmulKernel* kernel;
  Order order;
};

/// The kernels of every instruction set that this machine has, and that of tiles on emulated ones.
inline std::vector<Kernel> float_kernels() {
  std::vector<Kernel> kernels;
  for (const DType dtype : kFloatTypes) {
    for (const Isa isa : all_isas()) {
      const bool tiles = isa == Isa::kAmxBf16 && dtype == DType::kBF16;
      kernels.push_back({case_name(isa, dtype), dtype, &matmul_kernel(isa, dtype),
                         isa == Isa::kScalar ? Order::kSeparate
                         : tiles             ? Order::kTiles
                                             : Order::kFused});
    }
  }
  kernels.push_back({"emulated tiles bf16", DType::kBF16, &tests::kMatmulEmulatedTiles, Order::kEmulatedTiles});
  return kernels;
}

/// Those of int8 that this CPU can run.
inline std::vector<Kernel> int8_kernels() {
  std::vector<Kernel> kernels = {{"scalar int8", DType::kInt8, &kMatmulScalarInt8, Order::kGroups}};
  if (detect_isa() >= Isa::kAvx2) {
    kernels.push_back({"avx2 int8", DType::kInt8, &kMatmulAvx2Int8, Order::kGroups});
  }
  if (detect_isa() >= Isa::kAvx512) {
    kernels.push_back({"avx512 int8", DType::kInt8, &kMatmulAvx512Int8, Order::kGroups});
  }
  if (has_avx512_vnni()) {
    kernels.push_back({"avx512 with VNNI int8", DType::kInt8, &kMatmulVnniInt8, Order::kGroups});
    kernels.push_back({"avx512 with VNNI in two steps int8", DType::kInt8, &kMatmulVnniInt8TwoSteps, Order::kGroups});
  }
  if (has_amx_int8()) {
    kernels.push_back({"amx int8", DType::kInt8, &kMatmulAmxInt8, Order::kGroups});
  }
  kernels.push_back({"emulated tiles int8", DType::kInt8, &tests::kMatmulEmulatedTilesInt8, Order::kGroups});
  return kernels;
}

inline std::vector<Kernel> all_kernels() {
  std::vector<Kernel> kernels = float_kernels();
  for (Kernel& kernel : int8_kernels()) {
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

inline float round_to(DType dtype, float value) {
  return dtype == DType::kBF16 ? bf16_to_float(float_to_bf16(value)) : value;
}

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return values;
}

/// A weight [out, in], row-major f32, with its slices.
struct Weight {
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<Range> slices;
  std::vector<float> values;

  Weight(std::int64_t outputs, std::int64_t inputs, std::uint32_t seed, std::vector<Range> ranges = {})
      : out(outputs),
        in(inputs),
        slices(std::move(ranges)),
        values(random_floats(static_cast<std::size_t>(outputs * inputs), seed)) {
    if (slices.empty()) {
      slices = {{0, inputs}};
    }
  }

  WeightView view() const { return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, out, in, in, 1}; }
  LinearSpec spec(DType dtype) const { return {{view()}, slices, dtype}; }
};

/// Slices that end at `ends`.
inline std::vector<Range> slices_ending_at(const std::vector<std::int64_t>& ends) {
  std::vector<Range> slices;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    slices.push_back({begin, end});
    begin = end;
  }
  return slices;
}

/// y [rows, out], filled with a NaN before, as is the scratch, so that an output or an input that is not written is seen. Beside a cache of `cache_bytes`; with `between`, once more after
/// that has been multiplied with. What is for others lies on lines of its own, or `offset` floats behind.
inline std::vector<float> multiply_once(const CpuPackedLinear& packed, const float* x, std::int64_t rows, int threads,
                                        std::optional<std::int64_t> cache_bytes, Readers readers = Readers::kNear,
                                        std::int64_t offset = 0, const CpuPackedLinear* between = nullptr) {
  ThreadPool pool(threads);
  MatmulScratch scratch(cache_bytes);
  scratch.reserve(packed, pool.size());
  if (between != nullptr) scratch.reserve(*between, pool.size());
  std::fill_n(scratch.data(), scratch.bytes(), std::byte{0xff});
  const std::int64_t in = packed.in_features();
  const std::int64_t out = packed.out_features();
  constexpr std::int64_t kLine = AlignedArray::kAlignment / sizeof(float);
  const std::int64_t stride = readers != Readers::kNear ? (out + kLine - 1) / kLine * kLine : out;
  AlignedArray place(static_cast<std::size_t>(rows * stride + offset) * sizeof(float));
  auto* const y = reinterpret_cast<float*>(place.data()) + offset;
  const auto multiply_with_packed = [&] {
    std::fill_n(place.data(), place.bytes(), std::byte{0xff});
    matmul(packed, {x, rows, in, in}, {y, rows, out, stride}, scratch, pool, readers);
  };
  multiply_with_packed();
  if (between != nullptr) {
    std::vector<float> other(static_cast<std::size_t>(between->in_features() + between->out_features()));
    const std::int64_t inputs = between->in_features();
    matmul(*between, {other.data(), 1, inputs, inputs},
           {other.data() + inputs, 1, between->out_features(), between->out_features()}, scratch, pool);
    EXPECT_EQ(scratch.will_read_from(packed), ReadFrom::kEither);
    multiply_with_packed();
  }
  std::vector<float> outputs;
  for (std::int64_t r = 0; r < rows; ++r) outputs.insert(outputs.end(), y + r * stride, y + r * stride + out);
  return outputs;
}

/// The same, from a cache, from memory and from either, which are read differently, and from the first two also written past the caches: that the bits are the same is expected of every product.
inline std::vector<float> multiply(const CpuPackedLinear& packed, const float* x, std::int64_t rows, int threads = 1) {
  std::vector<float> y = multiply_once(packed, x, rows, threads, std::nullopt);
  const auto expect = [&](const std::vector<float>& other, const char* what) {
    EXPECT_TRUE(y.empty() || std::memcmp(y.data(), other.data(), y.size() * sizeof(float)) == 0) << rows << what;
  };
  expect(multiply_once(packed, x, rows, threads, 0), " rows read from memory");
  static const CpuPackedLinear between(Weight(16, 64, 1).spec(DType::kBF16), kMatmulScalarBf16);
  expect(multiply_once(packed, x, rows, threads, 2 * static_cast<std::int64_t>(between.bytes()), Readers::kNear, 0,
                       &between),
         " rows read from either");
  for (const std::int64_t offset : {0, 1}) {
    expect(multiply_once(packed, x, rows, threads, 0, Readers::kTeam, offset), " rows for far cores");
    expect(multiply_once(packed, x, rows, threads, std::nullopt, Readers::kCaller, offset), " rows for the caller");
  }
  return y;
}

/// Neighbours in pairs, an odd last one passes up, until one is left; no leaves at all are -0.0.
inline float fixed_tree(std::vector<float> level) {
  if (level.empty()) {
    return -0.0F;
  }
  while (level.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      next.push_back(i + 1 < level.size() ? level[i] + level[i + 1] : level[i]);
    }
    level = std::move(next);
  }
  return level.front();
}

}  // namespace specdec::matmul_test
