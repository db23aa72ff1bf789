#include "backend/cpu/aligned_array.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "backend/cpu/huge_pages.h"

namespace specdec {
namespace {

/// Smaller ones are scratch, and the translations of their few pages stay in the core.
constexpr std::size_t kLeastHuge = std::size_t{64} << 10;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

std::byte* of_heap(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(
      std::aligned_alloc(AlignedArray::kAlignment, round_up(bytes == 0 ? 1 : bytes, AlignedArray::kAlignment)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

AlignedArray::AlignedArray(std::size_t bytes, Fill fill) : bytes_(bytes) {
  static_assert(huge_pages::kAlignment % kAlignment == 0);
  const bool huge = bytes >= kLeastHuge;
  data_ = decltype(data_)(huge ? huge_pages::take(bytes) : of_heap(bytes), Free{huge ? bytes : 0});
  if (fill == Fill::kZero) std::memset(data_.get(), 0, bytes);
}

void AlignedArray::Free::operator()(std::byte* data) const {
  if (huge_bytes > 0) {
    huge_pages::give_back(data, huge_bytes);
  } else {
    std::free(data);
  }
}

}  // namespace specdec
