#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace specdec {

/// How a program that was started ended.
struct ChildResult {
  int code = 0;            ///< exit status, or 128 + signal
  bool timed_out = false;  ///< it was ended for running too long
  int interrupted = 0;     ///< the signal that this program got meanwhile, at which the child was ended; 0: none
  double seconds = 0;      ///< that it ran
  std::string last_line;   ///< of what it wrote to standard error, without empty lines
};

/// Signals that end a child and then this program, kept from ending this program alone: blocked while it lives, and waited for in run_child(). Children get the mask
/// that was there before.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  const sigset_t& before() const { return before_; }
  const sigset_t& held() const { return held_; }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

/// Runs `words`, the program looked up in PATH, in a process group of its own, its output to `log`. After `timeout` seconds, or at SIGINT, SIGTERM or SIGHUP, the group
/// gets SIGTERM, and SIGKILL ten seconds later; it also ends when this program dies. Throws kBadInput where the program cannot be started.
ChildResult run_child(const HeldSignals& signals, const std::vector<std::string>& words, double timeout,
                      const std::filesystem::path& log);

}  // namespace specdec
