#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/isa.h"

namespace specdec {

struct BackendOptions {
  std::string name = "cpu";  ///< "cpu" or "reference"
  /// Of "cpu": the weakest of all ranks of the job, so that every rank's logits have the same bits.
  Isa isa = detect_isa();
  int threads = 1;  ///< of "cpu": compute threads, the calling one included
};

/// Throws kBadInput for a name that does not exist, an instruction set that this CPU lacks, or a number of threads that cannot be started.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

}  // namespace specdec
