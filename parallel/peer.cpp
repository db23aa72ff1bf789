#include "parallel/peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace specdec {
namespace {

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Peer::Peer(Peer&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), outgoing_(std::move(other.outgoing_)), incoming_(std::move(other.incoming_)) {}

Peer::~Peer() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

bool Peer::flush() {
  while (!outgoing_.empty()) {
    const ssize_t sent = ::send(fd_, outgoing_.data(), outgoing_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
  }
  return true;
}

void Peer::send(const Message& message) {
  if (flush()) {
    const auto bytes = std::as_bytes(std::span(&message, 1));
    outgoing_.assign(bytes.begin(), bytes.end());
    if (!flush() && outgoing_.size() == sizeof message) {
      outgoing_.clear();  // nothing of it has gone, so it may be dropped
    }
  }
}

bool Peer::receive(const std::function<void(const Message&)>& handle) {
  for (;;) {
    std::array<std::byte, 4096> chunk{};
    const ssize_t got = ::recv(fd_, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got <= 0) {
      return got < 0 && would_block();
    }
    incoming_.insert(incoming_.end(), chunk.begin(), chunk.begin() + got);
    while (incoming_.size() >= sizeof(Message)) {
      Message message;
      std::memcpy(&message, incoming_.data(), sizeof message);
      incoming_.erase(incoming_.begin(), incoming_.begin() + sizeof message);
      message.text.back() = '\0';
      handle(message);
    }
  }
}

}  // namespace specdec
