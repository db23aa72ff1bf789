#pragma once

#include <chrono>
#include <cstdint>

/// What both first contacts of a job need: the watchdogs' sockets (peer.h) and the hand-over of shared memory.
namespace specdec {

/// poll() for `events` on one descriptor; false when they have not come by `until`, or never can.
bool wait_for(int fd, short events, std::chrono::steady_clock::time_point until);

/// The next connection to a listening socket, or -1 when none has come by `until`. Throws kPeerFailed where one cannot be taken, for want of
/// descriptors say.
int accept_by(int listener, std::chrono::steady_clock::time_point until);

/// Known to the ranks of one job only: keeps strangers out. Throws kInternal where the system gives no random bytes.
std::uint64_t make_token();

}  // namespace specdec
