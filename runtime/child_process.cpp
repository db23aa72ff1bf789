#include "runtime/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "backend/error.h"
#include "runtime/clock.h"

namespace specdec {
namespace {

constexpr double kGrace = 10;  // seconds from SIGTERM to SIGKILL
constexpr double kLongestPoll = 3600;
constexpr int kCannotStart = 127;  // as shells have it

[[noreturn]] void become(const std::vector<std::string>& words, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotStart);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const std::string why = fmt::format("{}: {}\n", words.front(), std::strerror(errno));
  [[maybe_unused]] const auto written = write(STDERR_FILENO, why.data(), why.size());
  _exit(kCannotStart);
}

std::string last_line_of(const std::filesystem::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r-") != std::string::npos) last = line;
  }
  return last;
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

ChildResult run_child(JobSignals& signals, const std::vector<std::string>& words, double timeout,
                      const std::filesystem::path& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw_bad_input(fmt::format("'{}' cannot be written: {}", log.string(), std::strerror(errno)));
  // Where it is ignored, as a parent may have left it, a child that ends leaves no status.
  std::signal(SIGCHLD, SIG_DFL);
  const pid_t parent = getpid();
  const double start = now_seconds();
  const pid_t child = fork();
  if (child == 0) become(words, file, parent);
  close(file);
  if (child < 0) throw_bad_input(fmt::format("{} cannot be started: {}", words.front(), std::strerror(errno)));
  setpgid(child, child);
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  check(ended >= 0, "cannot open a pidfd");

  ChildResult result;
  double deadline = start + timeout;
  bool asked = false;
  pollfd fds[] = {{ended, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  while ((fds[0].revents & POLLIN) == 0) {
    const double left = std::clamp(deadline - now_seconds(), 0.0, kLongestPoll);
    poll(fds, std::size(fds), static_cast<int>(std::ceil(1e3 * left)));
    if (const int signal = signals.take()) result.interrupted = signal;
    const bool late = now_seconds() >= deadline;
    if (asked && late) {
      kill(-child, SIGKILL);
      deadline += kGrace;
    } else if (!asked && (late || result.interrupted != 0)) {
      asked = true;
      result.timed_out = result.interrupted == 0;
      kill(-child, SIGTERM);
      deadline = now_seconds() + kGrace;
    }
  }
  close(ended);
  int status = 0;
  check(waitpid(child, &status, 0) == child, "cannot wait for a child");
  result.seconds = now_seconds() - start;
  result.code = code_of(status);
  result.last_line = last_line_of(log);
  if (result.code == kCannotStart && !result.last_line.empty()) throw_bad_input("launcher: " + result.last_line);
  return result;
}

}  // namespace specdec
