#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temporary_directory.h"

namespace specdec::tests {

/// A program of the build tree that needs no mpirun, as a user runs it: in a shell, a file for each of its streams.
class LocalProgram {
 public:
  struct Result {
    int code = -1;
    std::string out;
    std::string err;
  };

  explicit LocalProgram(const std::string& name) : program_(std::filesystem::path(SPECDEC_BINARY_DIR) / "bin" / name) {
    EXPECT_TRUE(std::filesystem::exists(program_)) << "build the target " << name;
  }

  Result run(const std::string& flags, const std::string& input = "") const {
    std::ofstream(folder() / "in", std::ios::binary) << input;
    const auto quoted = [&](const char* name) { return "'" + (folder() / name).string() + "'"; };
    const std::string command =
        "'" + program_.string() + "' " + flags + " <" + quoted("in") + " >" + quoted("out") + " 2>" + quoted("err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(folder() / "out"), contents(folder() / "err")};
  }

  /// Exit code 2, nothing on standard output, and one line on the other: "NAME: error: ..." with `what` in it.
  void expect_error(const std::string& flags, const std::string& what, const std::string& input = "") const {
    const Result result = run(flags, input);
    EXPECT_EQ(result.code, 2) << flags;
    EXPECT_EQ(result.out, "") << flags;
    EXPECT_EQ(result.err.rfind(program_.filename().string() + ": error: ", 0), 0U) << result.err;
    EXPECT_NE(result.err.find(what), std::string::npos) << result.err << "expected " << what;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  }

  const std::filesystem::path& folder() const { return directory_.path(); }
  static std::string contents(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

 private:
  std::filesystem::path program_;
  TemporaryDirectory directory_;
};

}  // namespace specdec::tests
