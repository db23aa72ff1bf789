#pragma once

#include <cstddef>
#include <string>

namespace specdec {

/// The file that weights lie in, mapped: for whoever keeps what was made of them beyond the job (backend/cpu/packed_cache.h).
struct SourceFile {
  const std::byte* data = nullptr;  ///< its first byte
  std::string path;                 ///< as it was opened
  /// Of the file that was mapped, not of what the path names later. Differs whenever its bytes may differ: device, inode, size, and the times
  /// of the last write and of the last change of anything, which no user can set.
  std::string state;
};

}  // namespace specdec
