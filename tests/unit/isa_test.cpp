#include "backend/cpu/isa.h"

#include <gtest/gtest.h>

namespace specdec {
namespace {

TEST(Isa, NamesGoBothWays) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmxBf16}) {
    EXPECT_EQ(parse_isa(name_of(isa)), isa);
  }
  EXPECT_EQ(name_of(Isa::kAvx512Bf16), "avx512_bf16");
  EXPECT_EQ(name_of(Isa::kAmxBf16), "amx_bf16");
  EXPECT_FALSE(parse_isa("AVX2"));
  EXPECT_FALSE(parse_isa(""));
}

TEST(Isa, WeakerIsLess) {
  EXPECT_LT(Isa::kScalar, Isa::kAvx2);
  EXPECT_LT(Isa::kAvx2, Isa::kAvx512);
  EXPECT_LT(Isa::kAvx512, Isa::kAvx512Bf16);
  EXPECT_LT(Isa::kAvx512Bf16, Isa::kAmxBf16);
}

}  // namespace
}  // namespace specdec
