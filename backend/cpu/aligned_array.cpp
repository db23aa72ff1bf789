#include "backend/cpu/aligned_array.h"

#include <cstring>
#include <new>

#include "backend/cpu/huge_pages.h"

namespace specdec {
namespace {

/// Smaller ones are scratch, and the translations of their few pages stay in the core.
constexpr std::size_t kLeastHuge = std::size_t{64} << 10;

constexpr auto kAlign = std::align_val_t(AlignedArray::kAlignment);

std::byte* of_heap(std::size_t bytes) { return static_cast<std::byte*>(::operator new(bytes, kAlign)); }

}  // namespace

AlignedArray::AlignedArray(std::size_t bytes, Fill fill) : bytes_(bytes) {
  static_assert(huge_pages::kAlignment % kAlignment == 0);
  const bool huge = bytes >= kLeastHuge;
  const bool when_touched = huge && fill == Fill::kZeroWhenTouched;
  const auto take = when_touched ? &huge_pages::take_zeroed : huge ? &huge_pages::take : &of_heap;
  data_ = decltype(data_)(take(bytes), Free{huge ? bytes : 0});
  if (fill != Fill::kNone && !when_touched) std::memset(data_.get(), 0, bytes);
}

void AlignedArray::Free::operator()(std::byte* data) const {
  if (huge_bytes > 0) {
    huge_pages::give_back(data, huge_bytes);
  } else {
    ::operator delete(data, kAlign);
  }
}

}  // namespace specdec
