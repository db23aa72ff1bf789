// The bytes of packed weights, written down here a second time: all kernels read them, and cached files keep them.
#include "backend/cpu/packed_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "backend/int8.h"
#include "runtime/fingerprint.h"
#include "tests/support/random_layers.h"
#include "tests/unit/backend_fixture.h"
#include "tests/unit/matmul_cases.h"

namespace specdec {
namespace {

using matmul_test::case_name;
using matmul_test::kPackedTypes;
using matmul_test::slices_ending_at;
using matmul_test::Weight;

void append(std::vector<std::byte>& bytes, const auto& value) {
  const std::span element = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), element.begin(), element.end());
}

/// A group of int8 inputs of 16 outputs: [steps][16][4], then [16] scales. What is quantised to what is matmul_int8_test.cpp's.
void append_group(std::vector<std::byte>& bytes, const std::vector<std::vector<float>>& outputs, std::size_t panel,
                  Range group) {
  std::int8_t integers[16][128] = {};
  float scales[16] = {};
  for (std::size_t i = 0; i < 16 && panel + i < outputs.size(); ++i) {
    const auto first = outputs[panel + i].begin() + group.begin;
    scales[i] = quantise_group(std::vector<float>(first, first + group.size()), integers[i]);
  }
  for (std::int64_t step = 0; step < group.size(); step += 4) {
    for (const auto& output : integers) {
      for (std::int64_t input = step; input < step + 4; ++input) {
        append(bytes, output[input]);
      }
    }
  }
  append(bytes, scales);
}

/// Element by element, as the comment at CpuPackedLinear says.
std::vector<std::byte> laid_out(const LinearSpec& spec) {
  const bool bf16 = spec.dtype == DType::kBF16;
  const std::int64_t step_inputs = bf16 ? 2 : 1;
  std::vector<std::vector<float>> outputs;
  for (const WeightView& view : spec.stacked) {
    for (std::int64_t row = 0; row < view.rows; ++row) {
      read_row(view, row, outputs.emplace_back(static_cast<std::size_t>(view.cols)));
    }
  }
  std::vector<std::byte> bytes;
  for (std::size_t panel = 0; panel < outputs.size(); panel += 16) {
    for (const Range& slice : spec.slices) {
      if (spec.dtype == DType::kInt8) {
        for (std::int64_t begin = slice.begin; begin < slice.end; begin += 128) {
          append_group(bytes, outputs, panel, {begin, std::min(begin + 128, slice.end)});
        }
        continue;
      }
      const std::int64_t padded = bf16 ? (slice.size() + 31) / 32 * 32 : slice.size();
      for (std::int64_t step = slice.begin; step < slice.begin + padded; step += step_inputs) {
        for (std::size_t output = panel; output < panel + 16; ++output) {
          for (std::int64_t input = step; input < step + step_inputs; ++input) {
            const bool there = output < outputs.size() && input < slice.end;
            const float value = there ? outputs[output][static_cast<std::size_t>(input)] : 0.0F;
            if (bf16) {
              append(bytes, float_to_bf16(value));
            } else {
              append(bytes, value);
            }
          }
        }
      }
    }
  }
  return bytes;
}

void expect_layout(const LinearSpec& spec, const std::string& name) {
  const std::vector<std::byte> want = laid_out(spec);
  for (const Isa isa : all_isas()) {
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      const CpuPackedLinear packed(spec, isa, pool);
      ASSERT_EQ(packed.bytes(), want.size()) << name;
      EXPECT_TRUE(tests::same_bytes(packed.panels(), want.data(), want.size()))
          << name << " " << case_name(isa, spec.dtype) << ", " << threads << " threads";
    }
    const CpuPackedLinear alone(spec, isa);
    EXPECT_TRUE(tests::same_bytes(alone.panels(), want.data(), want.size())) << name;
  }
}

TEST(PackedLinear, BytesOfRandomWeights) {
  for (const DType dtype : kPackedTypes) {
    for (const tests::RandomLayer& layer : tests::random_layers(dtype)) {
      expect_layout(layer.spec(), layer.name);
    }
  }
}

TEST(PackedLinear, BytesOfWeightsThatWereRead) {
  for (const DType dtype : kPackedTypes) {
    for (const tests::RandomLayer& layer : tests::random_layers(dtype)) {
      const tests::ReadLayer read(layer.spec());
      expect_layout(read.spec(), layer.name);
    }
    for (const auto& ends : {std::vector<std::int64_t>{257}, {0, 1, 3, 40, 40, 41, 231, 257, 257}, {100, 101, 257}}) {
      const Weight weight(251, 257, 11, slices_ending_at(ends));
      expect_layout(weight.spec(dtype), "cut");
    }
  }
}

TEST(PackedLinear, OtherBytesAreAnotherLayout) {
  RunningHash hash;
  for (const DType dtype : kPackedTypes) {
    for (const tests::RandomLayer& layer : tests::random_layers(dtype)) {
      const CpuPackedLinear packed(layer.spec(), Isa::kScalar);
      hash.add(std::span(packed.panels(), packed.bytes()));
    }
  }
  EXPECT_EQ(kPanelLayoutVersion, 3);
  EXPECT_EQ(hash.value(), 3785778930581462270U) << "raise kPanelLayoutVersion and write down its number and hash here";
}

TEST(PackedLinear, FillsMemoryThatWasUsedBefore) {
  // Padding is written too: large blocks come from the heap as others left them.
  const Weight weight(17, 3, 5, slices_ending_at({1, 3}));
  for (const DType dtype : {DType::kBF16, DType::kInt8}) {
    const std::vector<std::byte> want = laid_out(weight.spec(dtype));
    for (int i = 0; i < 8; ++i) {
      std::vector<std::vector<std::byte>> used(16, std::vector<std::byte>(want.size(), std::byte{0xff}));
      used.clear();
      const CpuPackedLinear packed(weight.spec(dtype), Isa::kScalar);
      ASSERT_TRUE(tests::same_bytes(packed.panels(), want.data(), want.size()));
    }
  }
}

}  // namespace
}  // namespace specdec
