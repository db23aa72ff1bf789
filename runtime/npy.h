#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>

namespace specdec {

/// Writes a matrix as NumPy's .npy (version 1.0, little-endian float32, C order), row by row, so that it need not fit in memory.
class NpyWriter {
 public:
  /// Throws kBadInput when the file cannot be written.
  NpyWriter(const std::filesystem::path& file, std::int64_t rows, std::int64_t cols);
  /// Any number of whole rows. Throws kBadInput when the disk is full.
  void append(std::span<const float> values);
  /// Throws kInternal unless all rows were written, and kBadInput when they did not reach the disk.
  void finish();

 private:
  void require_written();

  std::filesystem::path file_;
  std::ofstream stream_;
  std::int64_t left_;  // values
};

}  // namespace specdec
