#include "runtime/version.h"

#include <fmt/format.h>

#include "parallel/mpi_version.h"
#include "specdec_build.h"
#include "specdec_commit.h"

namespace specdec {

std::string build_commit() { return SPECDEC_COMMIT; }

std::string version_text(const std::string& program) {
  const std::string commit = build_commit();
  return fmt::format("{} {}{}\ncompiler: {}\nmpi: {}\ncuda: {}", program, SPECDEC_VERSION,
                     commit.empty() ? "" : fmt::format(" (commit {})", commit), SPECDEC_COMPILER, mpi_library_version(),
                     SPECDEC_CUDA);
}

}  // namespace specdec
