#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/calibration.h"
#include "runtime/cost_model.h"
#include "runtime/metrics.h"
#include "runtime/pace.h"
#include "runtime/study.h"
#include "runtime/study_results.h"

/// Figures of a study from the lines of its jobs. Times in milliseconds, as in the reports.
namespace specdec {

/// Mean, and the values below which a tenth and nine tenths of the samples lie (nearest rank): prompts of all repetitions.
struct Band {
  double mean = 0;
  double p10 = 0;
  double p90 = 0;
};

/// Of values that are not empty; `mean` is given, since that of a ratio is the ratio of sums.
Band band(std::vector<double> values, double mean);

/// What the jobs of one point showed.
struct PointFigures {
  int finished = 0;
  int failed = 0;
  std::string error;  ///< of the last that failed
  bool modelled = false;
  std::string forced;  ///< labels of random weights and synthetic acceptance; empty where nothing is forced
  std::int64_t tokens = 0;
  std::int64_t full_loops = 0;
  Band ms_per_token;
  /// What a token takes where every loop takes what the median one does in the quicker half of the jobs (quicker_half()), which is called undisturbed here: what a prediction is held to, since some loops, and
  /// some whole jobs, are slowed by what else a machine does. By loops, which are of one length in all jobs, and not by tokens, of which some jobs yield more by chance; nothing where K is not the same in all loops.
  std::optional<double> undisturbed_ms_per_token;
  std::optional<double> disturbed;  ///< how much longer a token takes in the mean of all jobs and loops
  /// Undisturbed loops of every other job over those of the rest; nothing of fewer than four.
  std::optional<double> halves;
  std::optional<Percentiles> typical_loop_ms;  ///< each the midmean() over jobs
  Band ms_per_loop;
  Band efficiency;  ///< tokens per loop / (K + 1), of loops that nothing cut; bands: of a prompt's loops
  Percentiles token_ms;
  std::optional<double> alpha;  ///< E[beta]: the rate at which drafted tokens that are reached stand in the mean
  /// The share of them that did in these jobs, whose times are predicted for it: some hundred loops of eight drafted tokens yield several per cent more or fewer tokens than alpha says, by chance.
  std::optional<double> stood;
  std::optional<double> tokens_per_loop;
  std::optional<double> expected_tokens_per_loop;
  std::optional<double> draft_ms_per_token;
  std::string backend;  ///< as the reports of its jobs name it
  double drafted_per_loop = 0;
  std::optional<double> drafted_per_full_loop;
  double context = 0;                                    ///< committed tokens, the mean over what was generated
  double late_share = 0;                                 ///< of modelled collectives
  std::vector<std::pair<std::string, double>> split_ms;  ///< a loop's, mean
  std::vector<std::pair<std::string, double>> undisturbed_split_ms;  ///< of the loops of undisturbed_ms_per_token
  // Against decoding alone with the same ranks, interconnect and models.
  std::optional<double> speedup;
  std::optional<double> cost_ratio;  ///< c
  // Leviathan et al. 2023 at the measured alpha (and c), as in the reports of specdec_dist.
  std::optional<double> theory_speedup;     ///< theorem 3.8
  std::optional<double> theory_operations;  ///< theorem 3.11
  std::optional<Prediction> predicted;
};

/// |a / b - 1| of points.
struct Deviations {
  int points = 0;
  double mean = 0;
  double worst = 0;
  void add(double error);
};

struct StudySummary {
  std::vector<PointFigures> points;         ///< as points_of() has them
  std::vector<nlohmann::json> all_reduces;  ///< rows of allreduce_bench
  nlohmann::json machine;                   ///< of the last job, with its program
  std::string program;
  std::map<std::string, int> places;   ///< jobs, by the hosts and processors that they ran on
  std::map<int, Hardware> calibrated;  ///< by ranks, where the study calibrates
  /// Of what is predicted, by ranks; points left out that a calibration was made from.
  std::map<int, Deviations> errors;
  std::map<std::pair<int, std::string>, Deviations> errors_of_models;  ///< the same by ranks and models
  std::map<int, Deviations>
      halves;  ///< of every other job of the same points from the rest, as far as errors are noise
  std::map<int, Deviations> disturbed;  ///< of all jobs and loops of the same points from what is undisturbed
  std::optional<Pace> pace;
};

StudySummary summarise(const Study& study, const std::vector<StudyPoint>& points, const StudyResults& results);

/// What is predicted for a point over what it takes undisturbed, less 1; nothing where nothing is.
std::optional<double> prediction_error(const PointFigures& of);

}  // namespace specdec
