#pragma once

#include <string>

namespace specdec {

/// The commit of the checkout that this was built from, with "+changes" when the files differed from it; empty outside of git.
std::string build_commit();

/// What `--version` prints: "PROGRAM 0.1.0 (commit)", then one line each for the compiler, the MPI library and the GPUs that it was
/// built for, without a newline at the end. Needs no MPI session.
std::string version_text(const std::string& program);

}  // namespace specdec
