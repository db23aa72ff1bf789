#pragma once

#include <immintrin.h>

#include "backend/cpu/matmul_tiles.h"

/// What the kernels on Intel's tiles share, as matmul_wide.h is what those with AVX-512 do.
namespace specdec {
namespace {  // NOLINT(google-build-namespaces): see there

/// In assembly: the compiler's macros want a tile's number spelled out, where ours come from templates, and do not say what memory they read.
struct Amx {
  static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const std::byte* from) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(kStepBytes), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(kStepBytes), "i"(kTile) : "memory");
  }
  /// Volatile: of a function of nothing but __builtin_prefetch GCC 12 finds that it has no effect, and drops its calls.
  static void prefetch(const std::byte* line) { asm volatile("prefetcht0 %0" : : "m"(*line)); }
};

}  // namespace
}  // namespace specdec
