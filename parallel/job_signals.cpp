#include "parallel/job_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "backend/error.h"

namespace specdec {

JobSignals::JobSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  check(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0, "cannot block SIGTERM and SIGINT");
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  check(fd_ >= 0, "cannot open a signalfd");
}

JobSignals::~JobSignals() { close(fd_); }

int JobSignals::take() {
  signalfd_siginfo info{};
  return read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace specdec
