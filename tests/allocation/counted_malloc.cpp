#include "tests/allocation/counted_malloc.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

// What glibc documents as the way to replace malloc: define the whole family. These names are its own implementations.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace specdec::tests {
namespace {

// Constant-initialised: the loader allocates before any constructor runs.
constinit std::atomic<std::int64_t> calls{0};

void count() { calls.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::int64_t allocations() { return calls.load(std::memory_order_relaxed); }

}  // namespace specdec::tests

extern "C" {

void* malloc(std::size_t bytes) {
  specdec::tests::count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  specdec::tests::count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  specdec::tests::count();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  specdec::tests::count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  specdec::tests::count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  specdec::tests::count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) { __libc_free(memory); }

}  // extern "C"
