#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "backend/error.h"
#include "parallel/network_interface.h"
#include "parallel/peer.h"
#include "parallel/socket_wait.h"
#include "parallel/value_bytes.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kConnectLimit{3};

/// A worker's first words.
struct Hello {
  std::uint64_t token = 0;
  std::int32_t rank = 0;
  std::int32_t unused = 0;
};

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = address;
  to.sin_port = htons(port);
  return to;
}

/// Where other hosts may reach this one.
std::vector<std::uint32_t> host_addresses() {
  std::vector<std::uint32_t> found;
  for (const InterfaceAddress& address : interface_addresses()) {
    if (!address.loopback) {
      found.push_back(address.address);
    }
  }
  return found;
}

void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// The rank behind a new connection, or -1 for a stranger.
int greet(int fd, std::uint64_t token, Clock::time_point until) {
  Hello hello;
  const auto bytes = value_bytes(hello);
  for (std::size_t got = 0; got < bytes.size();) {
    if (!wait_for(fd, POLLIN, until)) {
      return -1;
    }
    const ssize_t n = recv(fd, bytes.data() + got, bytes.size() - got, 0);
    if (n <= 0) {
      return -1;
    }
    got += static_cast<std::size_t>(n);
  }
  return hello.token == token ? hello.rank : -1;
}

/// A connected socket, or -1.
int try_connect(const sockaddr_in& from, const sockaddr_in& to) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return -1;
  }
  int error = bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from);
  socklen_t length = sizeof error;
  if (error != 0) {
    close(fd);
    return -1;
  }
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ||
      (errno == EINPROGRESS && wait_for(fd, POLLOUT, Clock::now() + kConnectLimit) &&
       getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0)) {
    return fd;
  }
  close(fd);
  return -1;
}

}  // namespace

PeerListener::PeerListener(std::optional<std::uint32_t> address)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  check(fd_ >= 0, "watchdog: cannot open a socket");
  sockaddr_in at = socket_address(address.value_or(htonl(INADDR_ANY)), 0);
  socklen_t length = sizeof at;
  check(bind(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && listen(fd_, SOMAXCONN) == 0 &&
            getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &length) == 0,
        "watchdog: cannot listen");
  endpoint_.token = make_token();
  endpoint_.port = ntohs(at.sin_port);
  const std::vector<std::uint32_t> reachable = address ? std::vector{*address} : host_addresses();
  endpoint_.address_count = static_cast<std::uint32_t>(std::min(reachable.size(), endpoint_.addresses.size()));
  std::copy_n(reachable.begin(), endpoint_.address_count, endpoint_.addresses.begin());
}

PeerListener::~PeerListener() { close(fd_); }

std::vector<Peer> PeerListener::accept(int workers, std::chrono::milliseconds limit) {
  std::map<int, Peer> found;  // by rank
  const auto until = Clock::now() + limit;
  while (static_cast<int>(found.size()) < workers) {
    const int fd = accept_by(fd_, until);
    if (fd < 0) {
      throw Error(ErrorKind::kPeerFailed,
                  "watchdog: " + std::to_string(workers - found.size()) + " ranks did not connect to rank 0 in time");
    }
    Peer peer(fd);
    const int rank = greet(fd, endpoint_.token, std::min<Clock::time_point>(Clock::now() + kConnectLimit, until));
    if (rank >= 1 && rank <= workers && found.try_emplace(rank, std::move(peer)).second) {
      send_at_once(fd);
    }
  }
  std::vector<Peer> peers;
  peers.reserve(found.size());
  for (auto& [rank, peer] : found) {
    peers.push_back(std::move(peer));
  }
  return peers;
}

Peer connect_to(const PeerEndpoint& endpoint, int rank, std::optional<std::uint32_t> from) {
  const sockaddr_in mine = socket_address(from.value_or(htonl(INADDR_ANY)), 0);
  for (std::uint32_t i = 0; i < endpoint.address_count; ++i) {
    const int fd = try_connect(mine, socket_address(endpoint.addresses[i], endpoint.port));
    if (fd >= 0) {
      Peer peer(fd);
      send_at_once(fd);
      const Hello hello{endpoint.token, rank, 0};
      if (::send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello)) {
        return peer;
      }
    }
  }
  throw Error(ErrorKind::kPeerFailed, "watchdog: rank " + std::to_string(rank) + " cannot reach rank 0 at any of its " +
                                          std::to_string(endpoint.address_count) + " addresses, port " +
                                          std::to_string(endpoint.port));
}

}  // namespace specdec
