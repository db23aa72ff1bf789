#include "parallel/bus_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "backend/error.h"

// All that runs in the handler is async-signal-safe: system calls and arithmetic on the stack.
namespace specdec {
namespace {

/// Reads a file line by line; what does not fit into the buffer is cut.
class LineReader {
 public:
  explicit LineReader(const char* path) : fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~LineReader() { close(fd_); }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool next(std::string_view& line) {
    std::size_t size = 0;
    char byte = 0;
    while (read(fd_, &byte, 1) == 1) {
      if (byte == '\n') {
        line = {line_.data(), size};
        return true;
      }
      if (size < line_.size()) {
        line_[size++] = byte;
      }
    }
    return false;
  }

 private:
  int fd_;
  std::array<char, 4096> line_{};
};

/// The file that is mapped at `address`, by /proc/self/maps ("begin-end flags offset device inode   path"); written to `path`.
std::string_view mapped_file(std::uintptr_t address, std::array<char, 4096>& path) {
  LineReader maps("/proc/self/maps");
  std::string_view line;
  while (maps.next(line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const char* const stop = line.data() + line.size();
    const auto first = std::from_chars(line.data(), stop, begin, 16);
    if (first.ptr == stop || std::from_chars(first.ptr + 1, stop, end, 16).ec != std::errc{}) {
      continue;
    }
    const std::size_t slash = line.find('/');
    if (begin <= address && address < end && slash != std::string_view::npos) {
      const std::string_view name = line.substr(slash);
      std::memcpy(path.data(), name.data(), name.size());
      return {path.data(), name.size()};
    }
  }
  return "a mapped file";
}

void on_bus_error(int /*signal*/, siginfo_t* info, void* /*context*/) {
  std::array<char, 4096> path;
  const std::string_view file = mapped_file(reinterpret_cast<std::uintptr_t>(info->si_addr), path);
  std::array<char, 5120> line;
  std::size_t size = 0;
  for (const std::string_view part :
       {std::string_view(program_invocation_short_name), std::string_view(": error: "), file,
        std::string_view(": was cut short or could not be read while it was in use\n")}) {
    const std::size_t fits = part.size() < line.size() - size ? part.size() : line.size() - size;
    std::memcpy(line.data() + size, part.data(), fits);
    size += fits;
  }
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), size);
  _exit(exit_code(ErrorKind::kBadInput));
}

}  // namespace

void report_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace specdec
