#include "parallel/thread_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "backend/error.h"
#include "parallel/culprit.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLook{0.1};
/// More than this between two looks is a machine that slept, which is nobody's fault.
constexpr Seconds kLongestLook{0.3};

[[noreturn]] void end(const std::string& message, ErrorKind kind) {
  const std::string line = std::string(program_invocation_short_name) + ": error: " + message + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(exit_code(kind));
}

void watch(const std::stop_token& stop, std::span<const Progress> ranks, double deadline) {
  std::vector<RankStatus> known(ranks.size());
  for (std::size_t rank = 0; rank < known.size(); ++rank) known[rank].rank = static_cast<int>(rank);
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  for (Clock::time_point last = Clock::now();;) {
    never.wait_for(lock, stop, kLook, [] { return false; });
    if (stop.stop_requested()) return;
    const Clock::time_point now = Clock::now();
    const double passed = std::min<Seconds>(now - last, kLongestLook).count();
    last = now;
    for (std::size_t rank = 0; rank < known.size(); ++rank) {
      const ProgressRecord progress = ranks[rank].snapshot();
      known[rank].stall = progress == known[rank].progress ? known[rank].stall + passed : 0;
      known[rank].progress = progress;
    }
    if (const std::optional<Culprit> found = find_culprit(known, deadline)) {
      char age[32];
      std::snprintf(age, sizeof age, "%.1f s", known[static_cast<std::size_t>(found->rank)].stall);
      end("rank " + std::to_string(found->rank) + " of " + std::to_string(ranks.size()) +
              " on threads has made no progress for " + age + " while others wait",
          ErrorKind::kPeerFailed);
    }
  }
}

}  // namespace

ThreadWatch::ThreadWatch(std::span<const Progress> ranks, double deadline)
    : thread_([ranks, deadline](const std::stop_token& stop) { watch(stop, ranks, deadline); }) {}

void ThreadWatch::fail(int rank, const std::exception_ptr& thrown) {
  const std::string which = "rank " + std::to_string(rank) + " on a thread: ";
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    end(which + error.what(), error.kind());
  } catch (const std::exception& error) {
    end(which + error.what(), ErrorKind::kInternal);
  } catch (...) {
    end(which + "threw what is no exception", ErrorKind::kInternal);
  }
}

}  // namespace specdec
