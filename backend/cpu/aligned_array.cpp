#include "backend/cpu/aligned_array.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace specdec {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

AlignedArray::AlignedArray(std::size_t bytes, Fill fill) : bytes_(bytes) {
  // Below a few huge pages the rounding would waste more memory than the saved page walks are worth.
  const bool huge = bytes >= 4 * kHugePage;
  const std::size_t alignment = huge ? kHugePage : kAlignment;
  const std::size_t reserved = round_up(bytes == 0 ? 1 : bytes, alignment);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, reserved));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  data_.reset(memory);
  if (huge) {
    // Advice only: where huge pages are switched off the array works the same, a little slower.
    static_cast<void>(madvise(memory, reserved, MADV_HUGEPAGE));
  }
  if (fill == Fill::kZero) {
    std::memset(memory, 0, reserved);
  }
}

void AlignedArray::Free::operator()(std::byte* data) const { std::free(data); }

}  // namespace specdec
