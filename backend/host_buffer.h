#pragma once

#include <cstddef>
#include <memory>

#include "backend/backend.h"

namespace specdec {

/// Zero-filled host memory, aligned to 64 bytes. Large buffers cost physical memory only where they are touched.
class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes);

  std::byte* data() override { return data_; }
  std::size_t bytes() const override { return bytes_; }
  const float* floats() const { return reinterpret_cast<const float*>(data_); }
  using Buffer::floats;

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace specdec
