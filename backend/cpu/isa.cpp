#include "backend/cpu/isa.h"

#include <array>

namespace specdec {
namespace {

constexpr std::array kNames = {std::string_view("scalar"), std::string_view("avx2"), std::string_view("avx512"),
                               std::string_view("avx512_bf16")};

}  // namespace

Isa detect_isa() {
  // The builtin also asks XGETBV whether the operating system saves the wide registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return Isa::kScalar;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return Isa::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

std::string_view name_of(Isa isa) { return kNames.at(static_cast<std::size_t>(isa)); }

std::optional<Isa> parse_isa(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<Isa>(i);
    }
  }
  return std::nullopt;
}

}  // namespace specdec
