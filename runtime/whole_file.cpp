#include "runtime/whole_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "backend/error.h"

namespace specdec {

WholeFile::WholeFile(std::filesystem::path path, std::string flag) : path_(std::move(path)), flag_(std::move(flag)) {
  std::error_code error;
  // The new file takes the old one's name. Root could take a device's, such as /dev/null, and everybody would be without it.
  const std::filesystem::file_status status = std::filesystem::status(path_, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw_bad_input(
        fmt::format("{}: found '{}', a directory, device or pipe, expected the name of a file", flag_, path_.string()));
  }
  target_ = std::filesystem::canonical(path_, error);  // a link stays one
  if (error) {
    target_ = path_;
  }
  temporary_ = target_;
  temporary_ += ".tmp";  // always the same, so that what a killed run leaves is written over by the next
  errno = 0;
  stream_.open(temporary_, std::ios::binary | std::ios::trunc);
  if (!stream_) {
    fail(errno != 0 ? std::strerror(errno) : "unknown reason");
  }
}

WholeFile::~WholeFile() {
  if (!finished_) {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }
}

void WholeFile::fail(const std::string& why) const {
  throw_bad_input(fmt::format("{}: '{}' cannot be written: {}", flag_, path_.string(), why));
}

void WholeFile::write(std::string_view text) {
  errno = 0;
  if (!stream_.write(text.data(), static_cast<std::streamsize>(text.size()))) {
    fail(errno != 0 ? std::strerror(errno) : "unknown reason");
  }
}

void WholeFile::finish() {
  errno = 0;
  stream_.close();
  if (!stream_) {
    fail(errno != 0 ? std::strerror(errno) : "unknown reason");
  }
  std::error_code error;
  std::filesystem::rename(temporary_, target_, error);
  if (error) {
    fail(error.message());
  }
  finished_ = true;
}

void write_whole_file(const std::filesystem::path& path, std::string_view text, std::string_view flag) {
  WholeFile file(path, std::string(flag));
  file.write(text);
  file.finish();
}

}  // namespace specdec
