#include "runtime/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>

#include "backend/error.h"
#include "runtime/clock.h"

namespace specdec {
namespace {

constexpr double kGrace = 10;       // seconds from SIGTERM to SIGKILL
constexpr long kTick = 50'000'000;  // ns between looks
constexpr int kCannotStart = 127;   // as shells have it

[[noreturn]] void become(const std::vector<std::string>& words, int log, const sigset_t& mask, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotStart);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
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

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&held_, signal);
  sigprocmask(SIG_BLOCK, &held_, &before_);
}

HeldSignals::~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

ChildResult run_child(const HeldSignals& signals, const std::vector<std::string>& words, double timeout,
                      const std::filesystem::path& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw_bad_input(fmt::format("'{}' cannot be written: {}", log.string(), std::strerror(errno)));
  const pid_t parent = getpid();
  const double start = now_seconds();
  const pid_t child = fork();
  if (child == 0) become(words, file, signals.before(), parent);
  close(file);
  if (child < 0) throw_bad_input(fmt::format("{} cannot be started: {}", words.front(), std::strerror(errno)));
  setpgid(child, child);

  ChildResult result;
  int status = 0;
  double kill_at = 0;  // 0: nothing was asked of it
  while (waitpid(child, &status, WNOHANG) == 0) {
    const timespec tick{.tv_sec = 0, .tv_nsec = kTick};
    const int signal = sigtimedwait(&signals.held(), nullptr, &tick);
    const double now = now_seconds();
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) result.interrupted = signal;
    if (kill_at == 0 && (result.interrupted != 0 || now - start > timeout)) {
      result.timed_out = result.interrupted == 0;
      kill(-child, SIGTERM);
      kill_at = now + kGrace;
    } else if (kill_at != 0 && now > kill_at) {
      kill(-child, SIGKILL);
    }
  }
  result.seconds = now_seconds() - start;
  result.code = code_of(status);
  result.last_line = last_line_of(log);
  if (result.code == kCannotStart && !result.last_line.empty()) throw_bad_input("launcher: " + result.last_line);
  return result;
}

}  // namespace specdec
