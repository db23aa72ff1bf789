#pragma once

#include <cstddef>
#include <span>

#include "parallel/communicator.h"

namespace specdec {

/// Memory that all ranks of one host see, zeroed at first. It has no name: it is a memfd, handed over a socket that only
/// ranks of this job and this user get through, so it ends with its last process and leaves nothing behind, however
/// that process ended. Its size is sealed: no rank can be hurt by another one that cuts it short.
class SharedRegion {
 public:
  /// One memory for all ranks of `group`, which must be processes of one host. Collective. Throws AgreedError
  /// (kPeerFailed) on every rank if any rank cannot have it.
  static SharedRegion across(Communicator& group, std::size_t bytes);
  /// For ranks that are threads of this process.
  static SharedRegion of_this_process(std::size_t bytes);

  ~SharedRegion();
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedRegion(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;  // page-aligned
};

}  // namespace specdec
