#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/progress.h"

namespace specdec {

enum class MessageKind : std::uint32_t {
  kHeartbeat,  ///< this rank lives; here is its progress
  kError,      ///< worker to rank 0: this rank has thrown; end the job
  kDisagrees,  ///< the same, because it does not hold what rank 0 holds
  kVerdict,    ///< rank 0 to the workers: the job ends, and rank 0 has said why
};

/// What watchdogs tell each other; travels as its bytes.
struct Message {
  MessageKind kind = MessageKind::kHeartbeat;
  std::int32_t exit_code = 0;
  std::int32_t signal = 0;  ///< last SIGTERM or SIGINT that this rank got
  ProgressRecord progress;
  std::array<char, 448> text{};  ///< zero-terminated; longer messages are cut
};

/// One end of a stream socket between rank 0 and a worker. Never blocks.
class Peer {
 public:
  /// Takes ownership of a connected socket.
  explicit Peer(int fd) : fd_(fd) {}
  ~Peer();
  Peer(Peer&& other) noexcept;
  Peer& operator=(Peer&&) = delete;

  int fd() const { return fd_; }
  /// Drops the message if the peer does not read any more; a heartbeat is worth nothing later.
  void send(const Message& message);
  /// Hands every whole message that has come to `handle`. False at the end of the stream: the other process is gone.
  bool receive(const std::function<void(const Message&)>& handle);

 private:
  bool flush();

  int fd_;
  std::vector<std::byte> outgoing_;  // the rest of a message that was sent in part
  std::vector<std::byte> incoming_;  // the part of a message that has come
};

/// Where rank 0 listens; travels as its bytes.
struct PeerEndpoint {
  std::uint64_t token = 0;  ///< known to the ranks of this job only
  std::uint16_t port = 0;
  std::uint32_t address_count = 0;
  std::array<std::uint32_t, 16> addresses{};  ///< IPv4, network byte order
};

/// Rank 0's side of the first contact.
class PeerListener {
 public:
  /// At this IPv4 address (network byte order) alone, or at all of this host.
  explicit PeerListener(std::optional<std::uint32_t> address);
  ~PeerListener();
  PeerListener(const PeerListener&) = delete;
  PeerListener& operator=(const PeerListener&) = delete;

  const PeerEndpoint& endpoint() const { return endpoint_; }
  /// The peers of the ranks 1 .. workers, in order. Throws kPeerFailed if one does not come within `limit`, however many strangers do.
  std::vector<Peer> accept(int workers, std::chrono::milliseconds limit = std::chrono::seconds(30));

 private:
  int fd_;
  PeerEndpoint endpoint_;
};

/// A worker's side, from this IPv4 address of its host, or from any. Tries all addresses; throws kPeerFailed if none answers.
Peer connect_to(const PeerEndpoint& endpoint, int rank, std::optional<std::uint32_t> from);

}  // namespace specdec
