#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config.h"

/// The command line of specdec_dist. `main` is then a few lines: every rank parses, rank 0 alone calls make_run_config and broadcasts
/// serialise(config) (config_load.h).
namespace specdec {

struct PromptArgument {
  enum class Kind : std::uint8_t { kText, kFile, kIds, kRandom } kind = Kind::kText;
  std::string value;
};

struct CommandLine {
  std::string config;            ///< --config; empty: none
  std::vector<std::string> set;  ///< --set key=value, in order
  std::vector<PromptArgument>
      prompts;  ///< --prompt, --prompt-file, --prompt-ids, --prompt-random, in order; any of them replaces the config's
  std::optional<std::string> target;
  std::optional<std::string> draft;  ///< "": none
  std::filesystem::path json;        ///< --json OUT; empty: none
  std::filesystem::path trace;       ///< --trace DIR; empty: none
  std::optional<int>
      plan;            ///< --plan [RANKS]: print what this many ranks would hold and do, and end; 0: those of the job
  bool stream = true;  ///< text to stdout as it is accepted; false with --no-stream
  bool report = true;  ///< the table on stderr; false with --quiet
  /// Set when the program has only to print this on rank 0 and end with 0: --help, --version,
  /// --print-keys. Without its last newline.
  std::optional<std::string> print;
};

/// Touches no file. Throws kBadInput for flags that are not understood.
CommandLine parse_command_line(int argc, const char* const* argv);

/// Reads the config and prompt files and finds the models: for rank 0. The paths in the result are absolute. Throws kBadInput.
RunConfig make_run_config(const CommandLine& command);

}  // namespace specdec
