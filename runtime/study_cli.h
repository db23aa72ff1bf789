#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cost_model.h"

/// The command line of specdec_study.
namespace specdec {

enum class StudyMode : std::uint8_t {
  kRun,         ///< a study's jobs, then its report
  kPlan,        ///< what would run
  kReport,      ///< of what has run
  kPredict,     ///< from descriptions alone
  kCalibrate,   ///< describes this machine
  kTimePasses,  ///< the job of a calibration that times passes alone
};

struct StudyCommand {
  StudyMode mode = StudyMode::kRun;
  std::string config;                     ///< --config: of a study, or with kPredict of a run
  std::filesystem::path out;              ///< --out DIR; empty: the study's name in the current directory
  std::vector<std::int64_t> rank_counts;  ///< of --calibrate and --time-passes
  std::string launcher;                   ///< --launcher, of a calibration; empty: as a study's
  int repeats = 3;                        ///< --repeats, of a calibration
  std::string hardware;                   ///< --hardware
  std::vector<std::string> set;           ///< --set, with kTimePasses
  double alpha = 0;
  std::vector<std::int64_t> ks;        ///< in the order in which they were given
  std::optional<Placement> placement;  ///< none: the config's
  std::optional<int> ranks;            ///< none: the hardware's
  std::int64_t context = 0;
  std::int64_t simulate = 0;         ///< loops to simulate for each K; 0: none
  std::uint64_t seed = 0;            ///< of the simulation
  std::filesystem::path json;        ///< --json OUT; empty: none
  std::optional<std::string> print;  ///< what --help or --version prints, and then the program ends
};

/// Touches no file. Throws kBadInput for flags that are not understood.
StudyCommand parse_study_command(int argc, const char* const* argv);

}  // namespace specdec
