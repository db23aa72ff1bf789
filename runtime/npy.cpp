#include "runtime/npy.h"

#include <fmt/format.h>

#include <bit>
#include <string>

#include "backend/error.h"

namespace specdec {

static_assert(std::endian::native == std::endian::little, "the file is written as values lie in memory");

NpyWriter::NpyWriter(const std::filesystem::path& file, std::int64_t rows, std::int64_t cols)
    : file_(file), stream_(file, std::ios::binary | std::ios::trunc), left_(rows * cols) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  // Magic, version and length take 10 bytes; padded so that the data starts at a multiple of 64.
  constexpr std::size_t kPrefix = 10;
  constexpr std::size_t kAlignment = 64;
  header.append(kAlignment - 1 - (kPrefix + header.size()) % kAlignment, ' ');
  header += '\n';
  const std::string length = {static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  stream_ << "\x93NUMPY\x01" << '\0' << length << header;
  require_written();
}

void NpyWriter::append(std::span<const float> values) {
  left_ -= static_cast<std::int64_t>(values.size());
  check(left_ >= 0, "NpyWriter: more values than its shape has");
  stream_.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
  require_written();
}

void NpyWriter::finish() {
  check(left_ == 0, "NpyWriter: fewer values than its shape has");
  stream_.close();
  require_written();
}

void NpyWriter::require_written() {
  if (!stream_) {
    throw_bad_input(fmt::format("{}: found a place that cannot be written to or is full, expected a new .npy file",
                                file_.string()));
  }
}

}  // namespace specdec
