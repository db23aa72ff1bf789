#include "models/text_file.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "backend/error.h"

namespace specdec {

std::string read_text_file(const std::filesystem::path& file, std::uint64_t limit) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    throw_bad_input(fmt::format("{}: found no such file, expected it to be there", file.string()));
  }
  if (!std::filesystem::is_regular_file(file, error)) {
    throw_bad_input(fmt::format("{}: found a directory, device or pipe, expected a file", file.string()));
  }
  const std::uint64_t bytes = std::filesystem::file_size(file, error);
  if (error || bytes > limit) {
    throw_bad_input(fmt::format("{}: found {} bytes, expected at most {}", file.string(), bytes, limit));
  }
  std::string text(bytes, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!stream) {
    throw_bad_input(fmt::format("{}: found an unreadable file, expected {} bytes", file.string(), bytes));
  }
  return text;
}

}  // namespace specdec
