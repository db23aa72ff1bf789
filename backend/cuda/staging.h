#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace specdec::cuda {

/// Copies between a device and pageable memory of the host that the host does not wait for: through a ring of pinned memory, in parts, in order. A copy from
/// pageable memory itself would wait for everything before it, inside the driver. `Copies`:
///
///     using Mark = ...;                                       a place in the order of copies; empty at first
///     std::unique_ptr<Buffer> allocate(std::size_t bytes);    pinned
///     void to_device(std::byte* to, const std::byte* from, std::size_t bytes);   `from` is pinned; enqueued
///     void to_host(std::byte* to, const std::byte* from, std::size_t bytes);     `to` is pinned; enqueued
///     void mark(Mark& mark);                                  after all that was enqueued so far
///     void wait(const Mark& mark);                            until that is done
template <class Copies>
class Staging {
 public:
  static constexpr std::size_t kParts = 4;

  explicit Staging(Copies copies, std::size_t part_bytes = std::size_t{8} << 20)
      : copies_(std::move(copies)), part_bytes_(part_bytes), memory_(copies_.allocate(kParts * part_bytes)) {}

  /// `from` has been read on return.
  void upload(std::byte* to, std::span<const std::byte> from) {
    while (!from.empty()) {
      const std::span<std::byte> staged = take(from.size());
      std::copy_n(from.begin(), staged.size(), staged.begin());
      copies_.to_device(to, staged.data(), staged.size());
      to += staged.size();
      from = from.subspan(staged.size());
    }
  }
  /// `to` is complete after finish().
  void download(std::span<std::byte> to, const std::byte* from) {
    while (!to.empty()) {
      const std::span<std::byte> staged = take(to.size());
      copies_.to_host(staged.data(), from, staged.size());
      parts_[part_].downloads.push_back({staged, to.data()});
      from += staged.size();
      to = to.subspan(staged.size());
    }
  }
  /// Waits until all that was enqueued is done.
  void finish() {
    copies_.mark(end_);
    copies_.wait(end_);
    for (Part& part : parts_) {
      deliver(part);
    }
  }

 private:
  struct Download {
    std::span<const std::byte> staged;
    std::byte* to;
  };
  struct Part {
    typename Copies::Mark left;  ///< when the ring went on to the next part
    bool was_left = false;
    std::vector<Download> downloads;  ///< not yet where they belong
  };

  /// Up to `bytes` of pinned memory that nothing uses any more.
  std::span<std::byte> take(std::size_t bytes) {
    if (used_ == part_bytes_) {
      copies_.mark(parts_[part_].left);
      parts_[part_].was_left = true;
      part_ = (part_ + 1) % kParts;
      used_ = 0;
      Part& next = parts_[part_];
      if (next.was_left) {
        copies_.wait(next.left);
        deliver(next);
      }
    }
    const std::size_t taken = std::min(bytes, part_bytes_ - used_);
    std::byte* const first = memory_->data() + part_ * part_bytes_ + used_;
    used_ += taken;
    return {first, taken};
  }

  static void deliver(Part& part) {
    for (const Download& download : part.downloads) {
      std::ranges::copy(download.staged, download.to);
    }
    part.downloads.clear();
  }

  Copies copies_;
  std::size_t part_bytes_;
  std::unique_ptr<Buffer> memory_;
  std::array<Part, kParts> parts_;
  std::size_t part_ = 0;
  std::size_t used_ = 0;
  typename Copies::Mark end_{};
};

}  // namespace specdec::cuda
