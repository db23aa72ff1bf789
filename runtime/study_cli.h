#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cost_model.h"

/// The command line of specdec_study.
namespace specdec {

struct StudyCommand {
  std::string config;    ///< --config
  std::string hardware;  ///< --hardware
  double alpha = 0;
  std::vector<std::int64_t> ks;  ///< in the order in which they were given
  Placement placement = Placement::kRank0;
  std::optional<int> ranks;  ///< none: the hardware's
  std::int64_t context = 0;
  std::filesystem::path json;        ///< --json OUT; empty: none
  std::optional<std::string> print;  ///< what --help or --version prints, and then the program ends
};

/// Touches no file. Throws kBadInput for flags that are not understood.
StudyCommand parse_study_command(int argc, const char* const* argv);

}  // namespace specdec
