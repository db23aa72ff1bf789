#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/host_buffer.h"

namespace specdec {

/// Memory that begins with a page, for measurements: where a buffer lies within a page decides how its loads meet the
/// stores of a copy, and would make one size slower than the next.
template <typename T>
class PageBuffer {
 public:
  explicit PageBuffer(std::size_t elements) : memory_(elements * sizeof(T) + kPage) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    elements_ = {reinterpret_cast<T*>(memory_.data() + (kPage - at % kPage) % kPage), elements};
  }
  std::span<T> span() const { return elements_; }

 private:
  static constexpr std::size_t kPage = 4096;
  HostBuffer memory_;
  std::span<T> elements_;
};

}  // namespace specdec
