/// A program that another one starts, waits for and ends.
#include "runtime/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <csignal>
#include <fstream>

#include "backend/error.h"
#include "tests/support/temporary_directory.h"

namespace specdec {
namespace {

/// JobSignals leaves signals blocked, which the tests that follow in this process do not expect.
class SavedMask {
 public:
  SavedMask() { pthread_sigmask(SIG_BLOCK, nullptr, &mask_); }
  ~SavedMask() { pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }
  SavedMask(const SavedMask&) = delete;
  SavedMask& operator=(const SavedMask&) = delete;

 private:
  sigset_t mask_{};
};

class ChildProcess : public ::testing::Test {
 protected:
  ChildResult run(const std::string& script, double timeout = 60) {
    return run_child(signals_, {"sh", "-c", script}, timeout, directory_.path() / "log");
  }
  const tests::TemporaryDirectory directory_;
  const SavedMask mask_;
  JobSignals signals_;
};

TEST_F(ChildProcess, TellsHowItEndedAndWhatItSaidLast) {
  const ChildResult good = run("echo one; echo two >&2; echo; exit 0");
  EXPECT_EQ(good.code, 0);
  EXPECT_FALSE(good.timed_out);
  EXPECT_EQ(good.last_line, "two");
  EXPECT_EQ(run("exit 3").code, 3);
  EXPECT_EQ(run("kill -KILL $$").code, 128 + SIGKILL);
}

TEST_F(ChildProcess, IsEndedWithAllThatItStartedWhenItTakesTooLong) {
  const auto pid_file = directory_.path() / "pid";
  const ChildResult result = run("sleep 1000 & echo $! > " + pid_file.string() + "; wait", 0.2);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.interrupted, 0);
  EXPECT_EQ(result.code, 128 + SIGTERM);
  pid_t grandchild = 0;
  std::ifstream(pid_file) >> grandchild;
  ASSERT_GT(grandchild, 0);
  // It was sent the signal too; init may take a moment to bury it.
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i) {
    std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");
    std::string line;
    gone = !std::getline(stat, line) || line.find(") Z") != std::string::npos;
    if (!gone) usleep(20'000);
  }
  EXPECT_TRUE(gone);
}

TEST_F(ChildProcess, ASignalToThisProgramEndsIt) {
  const ChildResult result = run("kill -INT " + std::to_string(getpid()) + "; sleep 1000");
  EXPECT_EQ(result.interrupted, SIGINT);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.code, 128 + SIGTERM);
}

TEST_F(ChildProcess, HasNoSignalBlocked) { EXPECT_EQ(run("kill -TERM $$; sleep 1000").code, 128 + SIGTERM); }

TEST_F(ChildProcess, TellsHowItEndedWhereThisProgramWasStartedWithChildrenIgnored) {
  std::signal(SIGCHLD, SIG_IGN);
  const int code = run("exit 3").code;
  std::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(code, 3);
}

TEST_F(ChildProcess, AProgramThatIsNotThereIsBadInput) {
  try {
    run_child(signals_, {"no-such-program"}, 10, directory_.path() / "log");
    FAIL() << "it was started";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no-such-program: No such file or directory"));
  }
}

}  // namespace
}  // namespace specdec
