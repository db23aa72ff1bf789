/// Whether speculation pays, at which K, and where the time goes: measured by jobs of a study, or predicted from descriptions of the models and the machine.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/error.h"
#include "models/config.h"
#include "parallel/host_cores.h"
#include "parallel/job_signals.h"
#include "parallel/program.h"
#include "parallel/self_communicator.h"
#include "runtime/calibration.h"
#include "runtime/cli.h"
#include "runtime/hardware_load.h"
#include "runtime/pass_times.h"
#include "runtime/pass_times_json.h"
#include "runtime/placement_ranks.h"
#include "runtime/predicted_job.h"
#include "runtime/prediction_text.h"
#include "runtime/stdout_text.h"
#include "runtime/study.h"
#include "runtime/study_cli.h"
#include "runtime/study_results.h"
#include "runtime/study_run.h"
#include "runtime/study_summary.h"
#include "runtime/version.h"
#include "runtime/whole_file.h"

namespace specdec {
namespace {

void predict(const StudyCommand& command) {
  const Hardware hardware = load_hardware(command.hardware, "--hardware");
  if (command.ranks && *command.ranks > hardware.ranks) {
    throw_bad_input(fmt::format("--ranks: found {}, expected at most {}, which is what {} has", *command.ranks,
                                hardware.ranks, hardware.name));
  }
  CommandLine config_of;
  config_of.config = command.config;
  const RunConfig config = make_run_config(config_of);
  if (config.draft.empty()) throw_bad_input(command.config + ": draft: found nothing, expected the model that drafts");
  PredictedJob job = predicted_job(config, command.ranks.value_or(hardware.ranks));
  job.placement = command.placement.value_or(config.placement);
  job.context = command.context;
  require_target_ranks(job.placement, job.ranks, command.placement ? "--placement" : command.config + ": placement");
  const std::int64_t longest = std::min(job.target.context, job.draft.context) - 1;
  if (command.context > longest) {
    throw_bad_input(
        fmt::format("--context: found {}, expected at most {}, which is what both models have positions for",
                    command.context, longest));
  }
  const std::vector<Prediction> predictions = predict(hardware, job, command.alpha, command.ks);
  std::vector<Simulated> simulated;
  for (std::size_t i = 0; command.simulate > 0 && i < command.ks.size(); ++i) {
    simulated.push_back(simulate(hardware, job, command.alpha, command.ks[i], command.simulate, command.seed));
  }
  const PredictionHeader header = {.version = version_text("specdec_study"),
                                   .target = std::filesystem::path(config.target).filename().string(),
                                   .draft = std::filesystem::path(config.draft).filename().string(),
                                   .hardware = &hardware,
                                   .job = &job,
                                   .alpha = command.alpha,
                                   .simulated = simulated,
                                   .loops = command.simulate};
  write_text(prediction_table(header, predictions), [] {});
  if (!command.json.empty()) {
    write_whole_file(command.json, prediction_json(header, predictions).dump(1) + "\n", "--json");
  }
}

std::filesystem::path programs() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }

int study(const StudyCommand& command) {
  const Study study = load_study(command.config);
  const std::vector<StudyPoint> points = points_of(study);
  const StudyFolder folder{command.out.empty() ? std::filesystem::path(study.name) : command.out};
  StudyResults results(folder.results());
  if (command.mode == StudyMode::kPlan) {
    write_text(plan_text(study, points, results), [] {});
    return 0;
  }
  StudyOutcome outcome;
  if (command.mode == StudyMode::kRun) outcome = run_study(study, points, folder, results, programs());
  std::string problem;
  write_text(write_study(study, points, folder, results, problem), [] {});
  if (!problem.empty()) {
    fmt::print(stderr,
               "specdec_study: warning: report.html was not drawn: {}; with matplotlib there (python3-matplotlib), "
               "--report draws it\n",
               problem);
  }
  if (outcome.interrupted != 0) {
    fmt::print(stderr, "specdec_study: interrupted; the same command goes on where it was\n");
    return exit_code_of_signal(outcome.interrupted);
  }
  return outcome.failed > 0 ? 1 : 0;
}

/// Runs K = 0 and 4 on each number of ranks and passes alone, and writes a description for each number.
int calibrate(const StudyCommand& command) {
  const std::string prefix = command.out.empty() ? "this-machine" : command.out.string();
  Study study;
  study.name = std::filesystem::path(prefix).filename();
  study.config = command.config;
  study.ranks.assign(command.rank_counts.begin(), command.rank_counts.end());
  study.ks = {0, Study::kCalibrationK};
  study.interconnects = {kNativeInterconnect};
  study.models = {{.name = "default", .set = {}}};
  study.methods = study.models;
  study.all_reduce = false;
  study.repeats = command.repeats;
  study.hardware = Study::kCalibrated;
  if (!command.launcher.empty()) study.launcher = command.launcher;
  const std::vector<StudyPoint> points = points_of(study);
  const StudyFolder folder{prefix + ".jobs"};
  std::filesystem::remove(folder.results());
  StudyResults results(folder.results());
  const StudyOutcome outcome = run_study(study, points, folder, results, programs());
  if (outcome.interrupted != 0) return exit_code_of_signal(outcome.interrupted);
  const StudySummary summary = summarise(study, points, results);
  for (const auto& [ranks, hardware] : summary.calibrated) {
    const std::string name = fmt::format("{}-{}", prefix, ranks);
    const std::string wires = ranks > 1 ? name + "-interconnect.yaml" : "";
    if (ranks > 1) write_whole_file(wires, interconnect_yaml(hardware.interconnect), "--out");
    const std::string text = hardware_yaml(hardware, std::filesystem::path(wires).filename());
    write_whole_file(name + ".yaml", text, "--out");
    write_text(fmt::format("# {}.yaml\n{}\n", name, text), [] {});
  }
  if (outcome.failed > 0) {
    fmt::print(stderr, "specdec_study: warning: {} jobs failed; {} says why\n", outcome.failed,
               folder.results().string());
  }
  return outcome.failed > 0 ? 1 : 0;
}

/// The job of a point of passes.
void time_passes_alone(const StudyCommand& command) {
  CommandLine config_of;
  config_of.config = command.config;
  config_of.set = command.set;
  const RunConfig config = make_run_config(config_of);
  if (config.draft.empty()) throw_bad_input(command.config + ": draft: found nothing, expected the model that drafts");
  SelfCommunicator host;
  const nlohmann::json out = pass_times_json(time_passes(config, command.rank_counts, own_share_of_cores(host)));
  if (command.json.empty()) {
    write_text(out.dump(1) + "\n", [] {});
  } else {
    write_whole_file(command.json, out.dump(1) + "\n", "--json");
  }
}

int program(int argc, char** argv) {
  const StudyCommand command = parse_study_command(argc, argv);
  if (command.print) {
    write_text(*command.print + "\n", [] {});
    return 0;
  }
  if (command.mode == StudyMode::kPredict) {
    predict(command);
    return 0;
  }
  if (command.mode == StudyMode::kTimePasses) {
    time_passes_alone(command);
    return 0;
  }
  return command.mode == StudyMode::kCalibrate ? calibrate(command) : study(command);
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  return specdec::run_local_program(argc, argv, [&] { return specdec::program(argc, argv); });
}
