/// Whether speculation pays, at which K, and where the time goes: measured by jobs of a study, or predicted from descriptions of the models and the machine.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/error.h"
#include "models/config.h"
#include "parallel/job_signals.h"
#include "parallel/program.h"
#include "runtime/cli.h"
#include "runtime/hardware_load.h"
#include "runtime/prediction_text.h"
#include "runtime/stdout_text.h"
#include "runtime/study.h"
#include "runtime/study_cli.h"
#include "runtime/study_results.h"
#include "runtime/study_run.h"
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
  const PredictedJob job = {.target = load_model_config(config.target),
                            .draft = load_model_config(config.draft),
                            .target_dtype = config.dtype,
                            .draft_dtype = config.type_of_draft(),
                            .placement = command.placement,
                            .ranks = command.ranks.value_or(hardware.ranks),
                            .context = command.context};
  const std::vector<Prediction> predictions = predict(hardware, job, command.alpha, command.ks);
  const PredictionHeader header = {.version = version_text("specdec_study"),
                                   .target = std::filesystem::path(config.target).filename().string(),
                                   .draft = std::filesystem::path(config.draft).filename().string(),
                                   .hardware = &hardware,
                                   .job = &job,
                                   .alpha = command.alpha};
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
  return study(command);
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  return specdec::run_local_program(argc, argv, [&] { return specdec::program(argc, argv); });
}
