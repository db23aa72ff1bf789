#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace specdec {

/// Bytes, aligned to a cache line; all but small ones on huge pages.
class AlignedArray {
 public:
  static constexpr std::size_t kAlignment = 64;

  enum class Fill : std::uint8_t {
    kZero,             ///< all written
    kZeroWhenTouched,  ///< zero too, but memory that large ones have not used yet costs none, and is not there to be measured
    kNone,             ///< the caller writes them all
  };

  AlignedArray() = default;
  explicit AlignedArray(std::size_t bytes, Fill fill = Fill::kZero);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    std::size_t huge_bytes;  ///< on huge pages; 0: of the heap
    void operator()(std::byte* data) const;
  };

  std::unique_ptr<std::byte[], Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace specdec
