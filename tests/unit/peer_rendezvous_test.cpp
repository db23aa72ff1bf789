#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "backend/error.h"
#include "parallel/peer.h"

namespace specdec {
namespace {

using std::chrono::milliseconds;

std::uint32_t loopback() { return htonl(INADDR_LOOPBACK); }

/// A port scanner: connects again and again and says nothing.
void knock(const std::stop_token& stop, const PeerEndpoint& endpoint) {
  std::vector<int> open;
  while (!stop.stop_requested()) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = loopback();
    to.sin_port = htons(endpoint.port);
    connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    open.push_back(fd);
    std::this_thread::sleep_for(milliseconds(20));
  }
  for (const int fd : open) {
    close(fd);
  }
}

TEST(PeerListener, StrangersDoNotMoveItsLimit) {
  PeerListener listener(loopback());
  const std::jthread stranger([&](const std::stop_token& stop) { knock(stop, listener.endpoint()); });
  try {
    listener.accept(1, milliseconds(500));
    FAIL() << "nobody has come";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeerFailed);
    EXPECT_EQ(std::string(error.what()), "watchdog: 1 ranks did not connect to rank 0 in time");
  }
}

TEST(PeerListener, TakesARankAmongStrangers) {
  PeerListener listener(loopback());
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = loopback();
  to.sin_port = htons(listener.endpoint().port);
  ASSERT_EQ(connect(silent, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const Peer worker = connect_to(listener.endpoint(), 1, loopback());
  close(silent);
  EXPECT_EQ(listener.accept(1).size(), 1U);
}

}  // namespace
}  // namespace specdec
