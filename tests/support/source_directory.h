/// Where the files of this repository are that tests read.
#pragma once

#include <filesystem>

namespace specdec::tests {

inline const std::filesystem::path kSource = SPECDEC_SOURCE_DIR;

}  // namespace specdec::tests
