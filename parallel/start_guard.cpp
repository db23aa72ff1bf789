#include "parallel/start_guard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>

#include "backend/error.h"

namespace specdec {
namespace {

using std::chrono::milliseconds;

constexpr const char* kDeadlineVariable = "SPECDEC_START_DEADLINE";
constexpr milliseconds kDefault{60'000};
/// Longer than mpirun takes to end a job after the first exit.
constexpr milliseconds kNextSpeaks{2000};
constexpr int kSpeakers = 3;

/// As the launcher says it, since MPI does not yet; 0 without one.
int launched_rank() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* const value = std::getenv(name)) {
      return std::atoi(value);
    }
  }
  return 0;
}

bool told_to_end() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

std::string seconds_of(milliseconds limit) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(limit.count()) / 1000);
  return text.data();
}

void guard(const std::stop_token& stop, const std::string& program, int rank, milliseconds limit) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, limit + std::min(rank, kSpeakers) * kNextSpeaks, [] { return false; });
  if (stop.stop_requested()) {
    return;
  }
  if (rank < kSpeakers && !told_to_end()) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    const std::string line = program + ": error: rank " + std::to_string(rank) + " on " + host.data() +
                             " has waited for MPI to start for " + seconds_of(limit) +
                             " s: a rank is stopped or lost, or a host cannot be reached (" + kDeadlineVariable + ")\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  }
  _exit(exit_code(ErrorKind::kPeerFailed));
}

}  // namespace

milliseconds StartGuard::limit() {
  const char* const text = std::getenv(kDeadlineVariable);
  if (text == nullptr || *text == '\0') {
    return kDefault;
  }
  constexpr double kMost = 86'400;
  double seconds = 0;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, seconds);
  if (error != std::errc() || stopped != end || !(seconds > 0 && seconds <= kMost)) {
    throw_bad_input(std::string(kDeadlineVariable) + ": found '" + text +
                    "', expected seconds, above 0 and up to 86400");
  }
  return milliseconds(std::llround(std::ceil(seconds * 1000)));
}

StartGuard::StartGuard(std::string program, milliseconds limit)
    // The rank is read before the thread is there: MPI's start writes to the environment, and who reads it meanwhile may be sent anywhere.
    : thread_([program = std::move(program), rank = launched_rank(), limit](const std::stop_token& stop) {
        guard(stop, program, rank, limit);
      }) {}

}  // namespace specdec
