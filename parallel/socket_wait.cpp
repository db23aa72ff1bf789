#include "parallel/socket_wait.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "backend/error.h"

namespace specdec {

bool wait_for(int fd, short events, std::chrono::steady_clock::time_point until) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd poll_fd{fd, events, 0};
    const int ready = poll(&poll_fd, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready >= 0 || errno != EINTR) {
      return ready > 0;
    }
  }
}

int accept_by(int listener, std::chrono::steady_clock::time_point until) {
  // The clock is looked at first: strangers may come one after another for ever.
  while (std::chrono::steady_clock::now() < until && wait_for(listener, POLLIN, until)) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      return fd;
    }
    if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
      throw Error(ErrorKind::kPeerFailed, std::string("cannot take a rank's connection: ") + std::strerror(errno));
    }
  }
  return -1;
}

std::uint64_t make_token() {
  std::uint64_t token = 0;
  check(getrandom(&token, sizeof token, 0) == static_cast<ssize_t>(sizeof token), "no random bytes for a token");
  return token;
}

}  // namespace specdec
