#include "backend/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace specdec {
namespace {

constexpr std::array kNames = {std::string_view("scalar"), std::string_view("avx2"), std::string_view("avx512"),
                               std::string_view("avx512_bf16"), std::string_view("amx_bf16")};

struct CpuId {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
};

/// Zeros where this CPU has no such leaf.
CpuId cpu_id(unsigned leaf) {
  CpuId found;
  __get_cpuid_count(leaf, 0, &found.a, &found.b, &found.c, &found.d);
  return found;
}

/// Tiles need the operating system twice: it keeps them when threads take turns, and since that takes 8 KB a thread, a process has to ask for it. Only for a
/// CPU that has XGETBV.
bool may_use_tiles() {
  constexpr unsigned kAmxBf16AndTile = 1U << 22 | 1U << 24;
  if ((cpu_id(7).d & kAmxBf16AndTile) != kAmxBf16AndTile) {
    return false;
  }
  constexpr unsigned kTileConfigAndData = 1U << 17 | 1U << 18;
  unsigned low = 0;
  unsigned high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileConfigAndData) != kTileConfigAndData) {
    return false;
  }
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, which older headers lack
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa detect() {
  // The builtin also asks XGETBV whether the operating system saves the wide registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return Isa::kScalar;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return Isa::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16")) {
    return Isa::kAvx512;
  }
  return may_use_tiles() ? Isa::kAmxBf16 : Isa::kAvx512Bf16;
}

}  // namespace

Isa detect_isa() {
  static const Isa isa = detect();
  return isa;
}

bool has_fast_vdpbf16ps() { return detect_isa() >= Isa::kAvx512Bf16 && __builtin_cpu_is("amd") != 0; }

bool has_fast_single_stream() {
  constexpr unsigned kFamilyOfZen5 = 0x1a;
  const unsigned a = cpu_id(1).a;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  return has_fast_vdpbf16ps() && family >= kFamilyOfZen5;
}

bool has_costly_shared_lines() { return has_fast_vdpbf16ps() && !has_fast_single_stream(); }

bool has_avx512_vnni() { return detect_isa() >= Isa::kAvx512 && __builtin_cpu_supports("avx512vnni"); }

bool has_amx_int8() {
  constexpr unsigned kAmxInt8 = 1U << 25;
  return detect_isa() >= Isa::kAmxBf16 && (cpu_id(7).d & kAmxInt8) != 0;
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
