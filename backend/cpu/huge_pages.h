#pragma once

#include <cstddef>

namespace specdec {

/// Memory on huge pages, as far as the kernel gives any. Pieces of some MiB share them: with a page of its own each matrix of a small model would waste most of it, and on 4 KB pages the walks through
/// page tables hold a pass back whose weights are more than the translations that a core keeps (docs/kernels.md, "Huge pages"). Any thread may call all of it.
namespace huge_pages {

inline constexpr std::size_t kPageBytes = std::size_t{2} << 20;
/// Beside a neighbour a piece begins at a cache line.
inline constexpr std::size_t kAlignment = 64;

/// `bytes` > 0, of any content. Throws std::bad_alloc. Touched pages cost memory, others none.
std::byte* take(std::size_t bytes);
/// The same, zero. Large pieces stay untouched: the kernel's fresh pages are zero.
std::byte* take_zeroed(std::size_t bytes);
/// What either returned for as many `bytes`. The kernel gets pages back with the last piece that shares them, but those to which the next would go.
void give_back(std::byte* memory, std::size_t bytes);

}  // namespace huge_pages
}  // namespace specdec
