#include "parallel/socket_wait.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

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

std::uint64_t make_token() {
  std::uint64_t token = 0;
  check(getrandom(&token, sizeof token, 0) == static_cast<ssize_t>(sizeof token), "no random bytes for a token");
  return token;
}

}  // namespace specdec
