#include "backend/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace specdec {
namespace {

TEST(DType, EveryBf16RoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const float f = bf16_to_float(b);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(f))));
    } else if (f == 0.0F || std::isnormal(f) || std::isinf(f)) {
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

TEST(DType, HalfKnownValues) {
  EXPECT_EQ(f16_to_float(0x3c00U), 1.0F);
  EXPECT_EQ(f16_to_float(0xc000U), -2.0F);
  EXPECT_EQ(f16_to_float(0x7bffU), 65504.0F);
  EXPECT_EQ(f16_to_float(0x0001U), 0x1p-24F);
  EXPECT_EQ(f16_to_float(0x03ffU), 1023.0F * 0x1p-24F);
  EXPECT_EQ(f16_to_float(0x7c00U), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_float(0x7e00U)));
}

}  // namespace
}  // namespace specdec
