#include "runtime/whole_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "backend/error.h"

namespace specdec {

void write_whole_file(const std::filesystem::path& path, std::string_view text, std::string_view flag) {
  std::error_code error;
  // The new file takes the old one's name. Root could take a device's, such as /dev/null, and everybody would be without it.
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw_bad_input(
        fmt::format("{}: found '{}', a directory, device or pipe, expected the name of a file", flag, path.string()));
  }
  std::filesystem::path file = std::filesystem::canonical(path, error);  // a link stays one
  if (error) file = path;
  std::filesystem::path temporary = file;
  temporary += ".tmp";  // always the same, so that what a killed run leaves is written over by the next
  const auto fail = [&](const std::string& why) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw_bad_input(fmt::format("{}: '{}' cannot be written: {}", flag, path.string(), why));
  };
  errno = 0;
  std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream) fail(errno != 0 ? std::strerror(errno) : "unknown reason");
  std::filesystem::rename(temporary, file, error);
  if (error) fail(error.message());
}

}  // namespace specdec
