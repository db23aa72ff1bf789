#include "backend/cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "backend/cpu/matmul_kernel.h"

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

/// Of the first CPU, as the kernel names them.
std::map<std::string, std::string> cpuinfo() {
  std::map<std::string, std::string> fields;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    fields[line.substr(0, line.find_last_not_of("\t :", colon) + 1)] = line.substr(std::min(colon + 2, line.size()));
  }
  return fields;
}

TEST(Isa, WhatACpuIsQuickAtGoesByItsMaker) {
  std::map<std::string, std::string> cpu = cpuinfo();
  ASSERT_FALSE(cpu["cpu family"].empty());
  std::istringstream flags(cpu["flags"]);
  bool has_bf16 = false;
  for (std::string flag; flags >> flag;) has_bf16 = has_bf16 || flag == "avx512_bf16";
  const bool zen4_or_later = has_bf16 && cpu["vendor_id"] == "AuthenticAMD";
  const bool zen5_or_later = zen4_or_later && std::stoi(cpu["cpu family"]) >= 26;
  EXPECT_EQ(has_fast_vdpbf16ps(), zen4_or_later);
  EXPECT_EQ(has_fast_single_stream(), zen5_or_later);
  const MatmulKernel& kernel = matmul_kernel(Isa::kAvx512Bf16, DType::kBF16);
  EXPECT_EQ(&kernel == &kMatmulVdpbf16OneStream, zen5_or_later);
  EXPECT_EQ(&kernel == &kMatmulVdpbf16, zen4_or_later && !zen5_or_later);
}

TEST(Isa, WeakerIsLess) {
  EXPECT_LT(Isa::kScalar, Isa::kAvx2);
  EXPECT_LT(Isa::kAvx2, Isa::kAvx512);
  EXPECT_LT(Isa::kAvx512, Isa::kAvx512Bf16);
  EXPECT_LT(Isa::kAvx512Bf16, Isa::kAmxBf16);
}

}  // namespace
}  // namespace specdec
