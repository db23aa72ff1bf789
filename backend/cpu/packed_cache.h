#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/aligned_array.h"
#include "backend/cpu/thread_pool.h"

namespace specdec {

/// What a packed matrix was made of and how, and where its file lies.
struct PackedKey {
  /// Of the weights' place: path, offsets, shape, slices, type. Those of another checkpoint at the same place go to the same file, in the place of the
  /// old ones.
  std::string file_name;
  /// The file's first bytes, a multiple of a page: the above, the state of the files that the weights were read from, the layout and sizes.
  std::string header;
  std::size_t bytes = 0;        ///< of all panels
  std::size_t piece_bytes = 0;  ///< that are read and checked at a time, each by one thread

  /// Nothing where there is nothing to keep: weights that lie in no file (random ones), or no weights.
  /// `layout`: of the panels' bytes; those of another one are of no use.
  static std::optional<PackedKey> of(const LinearSpec& spec, int layout, std::size_t bytes, std::size_t piece_bytes);
};

/// Packed weights in a folder, one file a matrix, so that the next job reads them instead of packing (docs/decisions/0008-packed-cache.md).
///
/// A file is [header][panels][XXH3-128 of both]. Nothing in it is trusted: its header must be, byte for byte, the one that this job would write, its
/// size and hash must be right, and it must belong to the user with nobody else allowed to write it. Any other file counts as none
/// and is replaced. So a cache can cost time, but not change a bit of a result.
///
/// Processes may share a folder: a file appears whole, under its name, or not at all, and of several that would write the same one does.
class PackedCache {
 public:
  /// Makes `folder` where there is none. Where that fails, or it has no name, there is nothing and nothing is kept; problem() says why. `progress` is called now and then while files are written, which may take long.
  explicit PackedCache(
      std::filesystem::path folder, std::function<void()> progress = [] {});

  /// The panels of `key`, if they are there and whole. Read by all threads of `pool`, each what it will multiply with, as when they are packed.
  std::optional<AlignedArray> load(const PackedKey& key, ThreadPool& pool);
  /// Keeps them for the next job. Whatever goes wrong goes to problem(), after which no more is kept.
  void store(const PackedKey& key, const AlignedArray& panels);

  std::int64_t loaded() const { return loaded_; }
  /// How often load() found nothing.
  std::int64_t missed() const { return missed_; }
  /// One line that names the file, or empty.
  const std::string& problem() const { return problem_; }

 private:
  std::filesystem::path folder_;
  std::function<void()> progress_;
  std::int64_t loaded_ = 0;
  std::int64_t missed_ = 0;
  std::string problem_;
};

}  // namespace specdec
