#include "backend/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace specdec {
namespace {

TEST(DType, EveryBf16RoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const float f = bf16_to_float(b);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(f))));
    } else if ((bits & 0x7fffU) == 0 || std::isnormal(f) || std::isinf(f)) {
      EXPECT_EQ(float_to_bf16(f), b);
    } else {
      EXPECT_EQ(float_to_bf16(f), b & 0x8000U) << "subnormals become zero of their sign";
    }
  }
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80U);  // tie, even below
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82U);  // tie, even above
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81U);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80U);
}

TEST(DType, EveryHalfRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const float f = f16_to_float(b);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(f))));
    } else {
      EXPECT_EQ(float_to_f16(f), b);
    }
  }
}

TEST(DType, HalvesRoundToNearestEven) {
  for (std::uint16_t b = 0; b < 0x7bffU; ++b) {
    // Between every two neighbours, subnormal ones too: the tie goes to the even one, and what is beside it to the nearest.
    const float tie = (f16_to_float(b) + f16_to_float(b + 1)) / 2;
    ASSERT_EQ(float_to_f16(tie), b % 2 == 0 ? b : b + 1) << b;
    ASSERT_EQ(float_to_f16(std::nextafter(tie, 0.0F)), b) << b;
    ASSERT_EQ(float_to_f16(std::nextafter(tie, 1e9F)), b + 1) << b;
  }
  EXPECT_EQ(float_to_f16(65519.996F), 0x7bffU);
  EXPECT_EQ(float_to_f16(-65520.0F), 0xfc00U);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::max()), 0x7c00U);
}

TEST(DType, HalfKnownValues) {
  EXPECT_EQ(f16_to_float(0x3c00U), 1.0F);
  EXPECT_EQ(f16_to_float(0xc000U), -2.0F);
  EXPECT_EQ(f16_to_float(0x7bffU), 65504.0F);
  EXPECT_EQ(f16_to_float(0x0001U), 0x1p-24F);
  EXPECT_EQ(f16_to_float(0x03ffU), 1023.0F * 0x1p-24F);
  EXPECT_EQ(f16_to_float(0x7c00U), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_float(0x7e00U)));
}

TEST(DType, LoadsManyAsItLoadsOne) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    constexpr std::size_t kCount = 1 << 16;  // every half there is
    std::vector<std::byte> bytes(1 + kCount * size_of(type));
    std::byte* const data = bytes.data() + 1;  // no alignment is promised
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::uint32_t bits =
          type == DType::kF32 ? static_cast<std::uint32_t>(i) * 65'537U : static_cast<std::uint32_t>(i);
      std::memcpy(data + i * size_of(type), &bits, size_of(type));
    }
    std::vector<float> many(kCount);
    load_as_floats(data, type, many);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(many[i]),
                std::bit_cast<std::uint32_t>(load_as_float(data, type, static_cast<std::int64_t>(i))))
          << name_of(type) << " " << i;
    }
  }
}

}  // namespace
}  // namespace specdec
