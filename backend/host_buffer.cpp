#include "backend/host_buffer.h"

#include <cstdlib>
#include <new>

namespace specdec {

void HostBuffer::Free::operator()(void* memory) const { std::free(memory); }

HostBuffer::HostBuffer(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t kAlignment = 64;
  // calloc and not aligned_alloc plus memset: the kernel's fresh pages are zero and stay unmapped until they are used.
  memory_.reset(std::calloc(bytes + kAlignment, 1));
  if (memory_ == nullptr) {
    throw std::bad_alloc();
  }
  void* aligned = memory_.get();
  std::size_t space = bytes + kAlignment;
  data_ = static_cast<std::byte*>(std::align(kAlignment, bytes, aligned, space));
}

}  // namespace specdec
