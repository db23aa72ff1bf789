#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace specdec {

/// Instruction sets that the CPU backend has kernels for, weakest first, so that a job agrees on one with a minimum
/// over its ranks. Logits are equal in every bit within one instruction set, and within a bound across them.
enum class Isa : std::uint8_t { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16 };

/// The strongest one that this CPU and its operating system offer. Where that is AMX, this process, with all of its threads, may use tiles from then on.
Isa detect_isa();

/// Whether a CPU with AVX-512 has AVX512-VNNI. No instruction set of its own, for its products have the bits of the others'.
bool has_avx512_vnni();

/// Whether a CPU with AMX has it for int8 too, which again has the bits of the others.
bool has_amx_int8();

/// Whether VDPBF16PS takes a CPU with AVX-512 BF16 no longer than one of the two multiply-adds that it replaces: on AMD's (Zen 4 and later). On Intel's it takes
/// as long as three. The sums have the same bits either way.
bool has_fast_vdpbf16ps();

/// Whether a core of such a CPU reads one stream from memory faster than several side by side: of AMD's Zen 5, and taken to hold for later ones (docs/kernels.md, "AVX-512 BF16").
bool has_fast_single_stream();

/// Whether a core of such a CPU takes long to write lines that others have read, and what is for them had better go past its caches where they are far (core_distance.h): AMD's Zen 4 (docs/kernels.md, "Rows for other threads");
/// others have not been measured.
bool has_costly_shared_lines();

/// "scalar", "avx2", "avx512", "avx512_bf16", "amx_bf16".
std::string_view name_of(Isa isa);

/// The inverse of name_of; nothing for any other name.
std::optional<Isa> parse_isa(std::string_view name);

}  // namespace specdec
