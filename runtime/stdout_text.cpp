#include "runtime/stdout_text.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "backend/error.h"

namespace specdec {

bool write_text(std::string_view text, const std::function<void()>& waiting) {
  constexpr int kPatienceMs = 100;
  while (!text.empty()) {
    pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&out, 1, kPatienceMs) == 0) {
      waiting();
      continue;
    }
    // A pipe that is ready takes PIPE_BUF bytes without blocking.
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno != EINTR && errno != EAGAIN) {
      throw_bad_input(fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
    }
  }
  return true;
}

bool write_text(std::string_view text, Progress& progress) {
  return write_text(text, [&] { progress.tick(); });
}

}  // namespace specdec
