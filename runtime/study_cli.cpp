#include "runtime/study_cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "backend/error.h"
#include "parallel/shard_plan.h"
#include "runtime/byte_sizes.h"
#include "runtime/enum_names.h"
#include "runtime/flags.h"
#include "runtime/study.h"
#include "runtime/version.h"

namespace specdec {
namespace {

constexpr const char* kStudyProgram = "specdec_study";
constexpr const char* kStudyAbout =
    "Says whether speculative decoding pays on a machine, at which K, and where the time goes.\n\n"
    "With --config FILE alone it runs a study (docs/study.md): every point is a job of its own, repeated in shuffled\n"
    "order; one that was stopped goes on where it was. --out gets results.jsonl, points.csv, summary.md, "
    "report.html.\n\n"
    "--predict runs nothing: it computes the time of passes and loops from a description of the hardware\n"
    "(configs/hardware/) and of the two models (--config), and labels everything as predicted.\n";
constexpr const char* kStudyExamples =
    "Examples:\n"
    "  specdec_study --config study-shipped.yaml --plan\n"
    "  specdec_study --config study-shipped.yaml --out results\n"
    "  specdec_study --calibrate 1,2 --config chinchilla-like-native.yaml --out this-machine\n"
    "  specdec_study --predict --hardware tpu-v4x16 --config chinchilla-70b.yaml --alpha 0.884 --k 0..7\n"
    "  specdec_study --predict --hardware tpu-v4x16 --config chinchilla-70b.yaml --alpha 0.755 --placement rank0 "
    "--json F\n"
    "Exit codes: 0 done; 1 a bug, or jobs of a study that failed; 2 bad input; 128 + signal interrupted.";
constexpr std::int64_t kMostPredicted = 1024;
constexpr std::int64_t kMostLoops = 100'000'000;
constexpr std::int64_t kLongestContext = std::int64_t{1} << 30;

Placement placement_of(const std::string& text) {
  return value_named(kPlacements, parse_word(text, names_of(kPlacements), "--placement"));
}

}  // namespace

StudyCommand parse_study_command(int argc, const char* const* argv) {
  StudyCommand command;
  bool predicts = false;
  bool plans = false;
  bool reports = false;
  std::string calibrate;
  std::string passes;
  std::string ks = "0..8";
  std::string placement;
  int ranks = 0;
  CLI::App app{kStudyAbout, kStudyProgram};
  app.footer(kStudyExamples);
  app.set_version_flag(
      "--version", [] { return version_text(kStudyProgram); }, "Print the version and exit");
  app.add_option(
      "--config", command.config,
      "Name or file of a study; with --predict, --calibrate and --time-passes of a config, for its target and draft");
  app.add_flag("--plan", plans, "Print the points of the study, what is done and how long the rest takes, and exit");
  app.add_flag("--report", reports, "Write the report of what has run, and run nothing");
  app.add_option(
      "--out", command.out,
      "Folder of the study's results (default: its name, in the current directory); with --calibrate how the names "
      "of its files and of the folder of its jobs, PREFIX.jobs, begin");
  const CLI::Option* const calibrates =
      app.add_option("--calibrate", calibrate,
                     "Describe this machine for predictions, from the config's models on so many ranks")
          ->type_name("[RANKS=1,2]")
          ->expected(0, 1);
  app.add_option("--launcher", command.launcher, "With --calibrate, the words that start {ranks} ranks");
  app.add_option("--repeats", command.repeats,
                 "With --calibrate, repetitions: the more, the less noise is in the description")
      ->capture_default_str();
  const CLI::Option* const timing =
      app.add_option(
             "--time-passes", passes,
             "Time passes of the config's models alone, the target cut over so many ranks, as a calibration does")
          ->type_name("[RANKS=1]")
          ->expected(0, 1);
  app.add_option_function<std::string>(
         "--set", [&](const std::string& text) { command.set.push_back(text); },
         "With --time-passes, change one key of the config; repeatable")
      ->type_name("KEY=VALUE")
      ->trigger_on_parse();
  app.add_flag("--predict", predicts, "Predict from descriptions alone");
  app.add_option("--hardware", command.hardware, "Name or file of a description of the machine (configs/hardware/)");
  app.add_option("--alpha", command.alpha, "Acceptance rate of a position that is reached, 0 to 1");
  app.add_option("--k", ks, "Drafted tokens a loop: 0..7, or 1,2,4")->capture_default_str();
  app.add_option("--placement", placement,
                 "Where the draft runs: rank0, replicated, sharded, or dedicated: on the last rank (default: as the "
                 "config says)");
  app.add_option("--ranks", ranks, "Ranks that the target is cut over (default: all that the hardware has)");
  app.add_option("--context", command.context, "Committed tokens that attention reads")->capture_default_str();
  app.add_option("--simulate", command.simulate,
                 "Also play so many loops of each K, with the jitter and the stragglers that the descriptions have");
  app.add_option("--seed", command.seed, "Of the simulation")->capture_default_str();
  app.add_option("--json", command.json, "Write the figures of --predict or --time-passes here");
  command.print = parse_flags(app, argc, argv);
  if (command.print) return command;

  const auto require = [&](const char* flag, const char* what) {
    if (app.count(flag) == 0) throw_bad_input(fmt::format("{}: found nothing, expected {}", flag, what));
  };
  const bool describes = calibrates->count() > 0;
  const bool times = timing->count() > 0;
  if (plans + reports + predicts + describes + times > 1) {
    throw_bad_input(
        "command line: found more than one of --plan, --report, --predict, --calibrate and --time-passes, expected "
        "one");
  }
  for (const char* flag : {"--launcher", "--repeats"}) {
    if (app.count(flag) > 0 && !describes) {
      throw_bad_input(fmt::format("{}: found without --calibrate, expected in the study's file", flag));
    }
  }
  if (command.repeats < 1 || command.repeats > kMostRepeats) {
    throw_bad_input(fmt::format("--repeats: found {}, expected 1 to {}", command.repeats, kMostRepeats));
  }
  require("--config", predicts || describes || times ? "a config with a target and a draft"
                                                     : "a study, such as study-shipped.yaml (--help)");
  if (!predicts) {
    for (const char* flag : {"--hardware", "--alpha", "--k", "--placement", "--ranks", "--context", "--simulate",
                             "--seed", "--json", "--set"}) {
      const bool of_passes = flag == std::string_view("--json") || flag == std::string_view("--set");
      if (app.count(flag) > 0 && !(times && of_passes))
        throw_bad_input(fmt::format("{}: found without --predict, expected with it", flag));
    }
    if (app.count("--out") > 0 && command.out.empty()) {
      throw_bad_input("--out: found nothing, expected the name of a folder");
    }
    const auto counts = [](const std::string& text, const char* otherwise, const char* flag) {
      std::vector<std::int64_t> found = parse_range(text.empty() ? otherwise : text, kCanonicalSlices, flag);
      if (std::ranges::find(found, 0) != found.end()) {
        throw_bad_input(fmt::format("{}: found 0, expected numbers of ranks", flag));
      }
      return found;
    };
    if (describes) command.rank_counts = counts(calibrate, "1,2", "--calibrate");
    if (times) command.rank_counts = counts(passes, "1", "--time-passes");
    command.mode = describes ? StudyMode::kCalibrate
                   : times   ? StudyMode::kTimePasses
                   : plans   ? StudyMode::kPlan
                   : reports ? StudyMode::kReport
                             : StudyMode::kRun;
    return command;
  }
  if (app.count("--out") > 0)
    throw_bad_input("--out: found with --predict, expected with a study; --json takes figures");
  command.mode = StudyMode::kPredict;
  require("--hardware", "the name of a description, such as tpu-v4x16");
  require("--alpha", "an acceptance rate");
  if (!(command.alpha >= 0 && command.alpha <= 1)) {
    throw_bad_input(fmt::format("--alpha: found {}, expected a number from 0 to 1", command.alpha));
  }
  if (app.count("--ranks") > 0) {
    if (ranks < 1 || ranks > kMostDescribedRanks) {
      throw_bad_input(fmt::format("--ranks: found {}, expected an integer from 1 to {}", ranks, kMostDescribedRanks));
    }
    command.ranks = ranks;
  }
  if (app.count("--simulate") > 0 && (command.simulate < 1 || command.simulate > kMostLoops)) {
    throw_bad_input(
        fmt::format("--simulate: found {}, expected an integer from 1 to {}", command.simulate, kMostLoops));
  }
  if (command.context < 0 || command.context > kLongestContext) {
    throw_bad_input(
        fmt::format("--context: found {}, expected an integer from 0 to {}", command.context, kLongestContext));
  }
  if (app.count("--json") > 0 && command.json.empty()) {
    throw_bad_input("--json: found nothing, expected the name of a file");
  }
  if (app.count("--placement") > 0) command.placement = placement_of(placement);
  command.ks = parse_range(ks, kMostPredicted, "--k");
  return command;
}

}  // namespace specdec
