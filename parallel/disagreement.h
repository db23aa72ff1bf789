#pragma once

#include <string>

#include "backend/error.h"

namespace specdec {

/// This rank does not hold what rank 0 holds; `what()` says in what they differ. Thrown on this rank alone: run_program (program.h)
/// hands it to the watchdog, which finds out who is the odd one.
class Disagreement final : public Error {
 public:
  explicit Disagreement(const std::string& message) : Error(ErrorKind::kPeerFailed, message) {}
};

}  // namespace specdec
