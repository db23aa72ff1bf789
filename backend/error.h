#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace specdec {

/// Why a job ends early; decides the exit code of a program (docs/protocol.md, "How a job ends").
enum class ErrorKind : std::uint8_t {
  kBadInput,    ///< the user can mend it: a file, a key, a flag, a prompt. Exit code 2.
  kPeerFailed,  ///< another rank died, hangs or disagrees. Exit code 3.
  kInternal,    ///< a broken invariant of this program. Exit code 1.
};

/// The one exception type of the libraries. Only `main` catches it, prints `what()` once, on rank 0, and ends the job.
///
/// `what()` is one line that names the place (file, line or key), what was found and what was expected.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::source_location where = std::source_location::current())
      : std::runtime_error(message), kind_(kind), where_(where) {}

  ErrorKind kind() const { return kind_; }
  /// Where in this program it was thrown; printed for kInternal only, since a user cannot use it otherwise.
  const std::source_location& where() const { return where_; }

 private:
  ErrorKind kind_;
  std::source_location where_;
};

/// Exit code of a program that ends with an error of this kind.
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadInput:
      return 2;
    case ErrorKind::kPeerFailed:
      return 3;
    case ErrorKind::kInternal:
      break;
  }
  return 1;
}

/// Throws Error(kBadInput).
[[noreturn]] void throw_bad_input(const std::string& message,
                                  std::source_location where = std::source_location::current());

/// Throws Error(kInternal) when `holds` is false. Its argument must have no side effect that the program needs.
void check(bool holds, std::string_view what, std::source_location where = std::source_location::current());

}  // namespace specdec
