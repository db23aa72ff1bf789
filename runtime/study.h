#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/hardware.h"
#include "runtime/placement.h"

/// A scaling study as it is written down: what is varied, and how its jobs are started (docs/study.md).
namespace specdec {

/// A named set of config keys: a pair of models, or a way to decode.
struct StudyVariant {
  std::string name;
  std::vector<std::string> set;  ///< "key=value", as --set takes them
};

/// Of a study, and of a calibration.
inline constexpr int kMostRepeats = 1000;

struct Study {
  std::string name;    ///< of its file
  std::string text;    ///< the file, for the report
  std::string title;   ///< of the report
  std::string config;  ///< that every job begins with
  std::vector<std::string> set;
  std::vector<int> ranks{1};
  std::vector<std::int64_t> ks{0, 4};
  std::vector<std::string> interconnects;
  std::vector<Placement> placements{Placement::kRank0};
  std::vector<StudyVariant> models;   ///< at least one, perhaps of no keys
  std::vector<StudyVariant> methods;  ///< at least one, perhaps of no keys
  bool all_reduce = true;             ///< also time all-reduces under each interconnect with each number of ranks
  std::string all_reduce_bytes = "1K..256K";
  int repeats = 3;
  std::uint64_t seed = 0;  ///< of the order of the jobs
  double timeout = 600;    ///< seconds a job
  std::string launcher = "mpirun -np {ranks}";
  /// Predictions are of a description that is made from the study's own jobs: K = 0 and kCalibrationK of the first models with the first method on the machine's own
  /// interconnect, passes, and all-reduces of ranks that do nothing else.
  bool calibrates() const { return hardware == kCalibrated; }
  static constexpr std::string_view kCalibrated = "calibrated";
  static constexpr std::int64_t kCalibrationK = 4;
  /// So many jobs of each of these in a repetition: what noise is in them is in every prediction.
  static constexpr int kCalibrationJobs = 3;

  std::string hardware;   ///< description to predict with, "{ranks}" in it being a point's; empty: no predictions
  std::string published;  ///< figures of a paper to draw beside; empty: none

  /// The description of so many ranks; nothing without one, and where {ranks} names a file that is not there.
  std::optional<Hardware> hardware_of(int count) const;
};

/// Reads the file of a study, which is looked up as configs are. Throws kBadInput in one line.
Study load_study(const std::string& name);
Study parse_study(const std::string& yaml, const std::string& place, const std::string& name);

enum class PointKind : std::uint8_t {
  kDecode,
  kAllReduce,  ///< a run of allreduce_bench, which has neither K nor models nor method
  kPasses,     ///< passes of the first models alone, for a calibration
  kLink,       ///< for a calibration too: a run of allreduce_bench with 1 row of the first models' target and with more
};

/// One point of a study: a job, which is run `repeats` times (kAllReduce: once; those that a calibration is made from: kCalibrationJobs times as often).
struct StudyPoint {
  PointKind kind = PointKind::kDecode;
  int ranks = 1;
  std::int64_t k = 0;
  std::string interconnect;
  Placement placement = Placement::kRank0;
  std::string models;
  std::string method;
  std::vector<std::string> set;  ///< all keys over the study's config, in order
  RunConfig
      config;  ///< that they make; each repetition's seed is one higher, so that bands and means are over random numbers too

  /// Whether a calibration is made from it.
  bool calibrates = false;

  /// "ranks 2, K 4, tpu-v4-chen, shipped, nucleus".
  std::string label() const;
  /// Of everything that decides what the job does, the commit of this build included: a result counts for a point when their keys are the same.
  std::string key;
};

/// Whether its job is allreduce_bench.
inline bool times_all_reduces(const StudyPoint& point) {
  return point.kind == PointKind::kAllReduce || point.kind == PointKind::kLink;
}

/// How often a point is run in a repetition, and in all of them.
inline int jobs_a_repetition(const StudyPoint& point) { return point.calibrates ? Study::kCalibrationJobs : 1; }
inline int repeats_of(const Study& study, const StudyPoint& point) {
  return point.kind == PointKind::kAllReduce ? 1 : study.repeats * jobs_a_repetition(point);
}

/// All points, each config read and checked: what is wrong with any of them is found before the first job runs. A K of 0 is autoregressive decoding, without a draft in
/// its loop. Where models or a method set decode.k themselves, that is their only K.
std::vector<StudyPoint> points_of(const Study& study);

/// The words that start the job of a point, which writes its report to `json`. `programs`: the folder of specdec_dist and allreduce_bench.
std::vector<std::string> command_of(const Study& study, const StudyPoint& point, int repeat,
                                    const std::filesystem::path& programs, const std::filesystem::path& json);

/// A run of a point.
struct StudyJob {
  std::size_t point = 0;  ///< index
  int repeat = 0;         ///< of the point, from 0
};

/// Every point as often as it is run (all-reduces once), shuffled by the study's seed within each repetition: what changes slowly on a machine meets all points alike.
std::vector<StudyJob> order_of(const Study& study, const std::vector<StudyPoint>& points);

}  // namespace specdec
