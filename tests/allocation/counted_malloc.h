#pragma once

#include <cstdint>

namespace specdec::tests {

/// Calls of malloc, calloc, realloc and the aligned ones so far, by any thread of this program; operator new is among them, since it calls
/// malloc. Linking counted_malloc.cpp replaces the C library's own.
std::int64_t allocations();

}  // namespace specdec::tests
