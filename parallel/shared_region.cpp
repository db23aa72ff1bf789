#include "parallel/shared_region.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "backend/error.h"
#include "parallel/agree.h"
#include "parallel/socket_wait.h"
#include "parallel/value_bytes.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kHandOverLimit{10};
constexpr std::chrono::seconds kRequestLimit{3};  // for the first words of whoever has connected

[[noreturn]] void throw_system_error(const std::string& what) {
  throw Error(ErrorKind::kPeerFailed, "shm: " + what + ": " + std::strerror(errno));
}

/// Where rank 0 hands the memory out; travels as its bytes.
struct Desk {
  std::uint64_t token = 0;  ///< known to the ranks of this job only
  std::array<char, sizeof(sockaddr_un::sun_path)> name{};
  socklen_t length = 0;  ///< of the whole address
};

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// One byte and room for one descriptor: how a descriptor travels over a local socket.
struct FdMessage {
  FdMessage() {
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  FdMessage(const FdMessage&) = delete;
  FdMessage& operator=(const FdMessage&) = delete;

  char word = 0;
  iovec content{&word, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
};

Fd unix_socket() {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    throw_system_error("socket");
  }
  return fd;
}

/// A listening socket in the abstract namespace: the kernel picks the name, and no file is made.
Fd open_desk(Desk& desk) {
  Fd listener = unix_socket();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address.sun_family) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    throw_system_error("cannot listen on a local socket");
  }
  desk.length = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &desk.length) != 0) {
    throw_system_error("getsockname");
  }
  std::memcpy(desk.name.data(), address.sun_path, desk.name.size());
  desk.token = make_token();
  return listener;
}

bool of_this_user(int connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

/// Gives `memory` to whoever knows the token; false for a stranger.
bool serve(int connection, std::uint64_t token, int memory, Clock::time_point until) {
  std::uint64_t heard = 0;
  if (!wait_for(connection, POLLIN, until) ||
      recv(connection, &heard, sizeof heard, 0) != static_cast<ssize_t>(sizeof heard) || heard != token ||
      !of_this_user(connection)) {
    return false;
  }
  FdMessage envelope;
  msghdr& message = envelope.message;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  return sendmsg(connection, &message, MSG_NOSIGNAL) == 1;
}

Fd make_memory(std::size_t bytes) {
  Fd memory(memfd_create("specdec", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid() || ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw_system_error("cannot make " + std::to_string(bytes) + " bytes of shared memory");
  }
  return memory;
}

/// A rank that does not come is no error here: it knows better why it has not got the memory, and says so.
void hand_out(const Fd& listener, const Desk& desk, int memory, int ranks) {
  const auto until = Clock::now() + kHandOverLimit;
  while (ranks > 0) {
    const Fd connection(accept_by(listener.get(), until));
    if (!connection.valid()) {
      return;
    }
    const auto request_by = std::min<Clock::time_point>(Clock::now() + kRequestLimit, until);
    if (serve(connection.get(), desk.token, memory, request_by)) {
      --ranks;
    }
  }
}

Fd fetch(const Desk& desk) {
  Fd connection = unix_socket();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, desk.name.data(), desk.name.size());
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), desk.length) != 0 ||
      send(connection.get(), &desk.token, sizeof desk.token, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof desk.token)) {
    throw_system_error(
        "cannot reach the local socket of the group's first rank (are all ranks in one network namespace?)");
  }
  wait_for(connection.get(), POLLIN, Clock::now() + kHandOverLimit);  // what has not come shows below
  FdMessage envelope;
  msghdr& message = envelope.message;
  const ssize_t got = recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got != 1 || header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    throw Error(ErrorKind::kPeerFailed, "shm: the group's first rank did not hand over the shared memory");
  }
  int memory = -1;
  std::memcpy(&memory, CMSG_DATA(header), sizeof memory);
  return Fd(memory);
}

std::span<std::byte> map(int fd, std::size_t bytes, int flags) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) {
    throw_system_error("cannot map " + std::to_string(bytes) + " bytes");
  }
  return {static_cast<std::byte*>(at), bytes};
}

/// Takes rank's share of the pages now, where the kernel finds them near this rank, and so that a lack of memory is an
/// error here and not a SIGBUS later.
void reserve(int memory, std::size_t bytes, int rank, int ranks) {
  const std::size_t begin = bytes * rank / ranks;
  const std::size_t end = bytes * (rank + 1) / ranks;
  if (fallocate(memory, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) != 0) {
    throw_system_error("cannot reserve " + std::to_string(bytes) + " bytes of shared memory");
  }
}

}  // namespace

SharedRegion SharedRegion::across(Communicator& group, std::size_t bytes) {
  const bool first = group.rank() == 0;
  Desk desk;
  Fd listener;
  Fd memory;
  agree(group, [&] {
    if (first) {
      memory = make_memory(bytes);
      listener = open_desk(desk);
    }
  });
  group.broadcast(value_bytes(desk), 0, Stream{});
  return agree(group, [&] {
    if (first) {
      hand_out(listener, desk, memory.get(), group.size() - 1);
    } else {
      memory = fetch(desk);
    }
    reserve(memory.get(), bytes, group.rank(), group.size());
    return SharedRegion(map(memory.get(), bytes, MAP_SHARED));
  });
}

SharedRegion SharedRegion::of_this_process(std::size_t bytes) {
  return SharedRegion(map(-1, bytes, MAP_SHARED | MAP_ANONYMOUS));
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

SharedRegion::~SharedRegion() {
  if (!bytes_.empty()) {
    munmap(bytes_.data(), bytes_.size());
  }
}

}  // namespace specdec
