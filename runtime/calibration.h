#pragma once

#include <optional>
#include <string>

#include "backend/dtype.h"
#include "models/config.h"
#include "runtime/hardware.h"
#include "runtime/pass_times.h"
#include "runtime/statistics.h"

/// A description of a machine, for the cost model, from a few things that are measured on it: passes of two models on one rank, and jobs of one pair with K = 0 and with
/// one K above (docs/study.md).
namespace specdec {

/// A loop of real jobs, means in seconds.
struct CalibrationLoop {
  double drafted = 0;  ///< tokens
  double draft = 0;
  double broadcast = 0;
  double compute = 0;
  double all_reduce = 0;
  double rest = 0;   ///< decision included
  double alpha = 0;  ///< acceptance rate
};

/// Between the ranks of such a job that do nothing else.
struct TimedAllReduce {
  double bytes = 0;
  double seconds = 0;
};

struct CalibrationData {
  ModelConfig target;
  ModelConfig draft;
  DType target_dtype = DType::kBF16;
  DType draft_dtype = DType::kBF16;
  int ranks = 1;
  double context = 0;                ///< mean of the jobs'
  bool whole_rows = false;           ///< PredictedJob's
  PassTimes passes;                  ///< of as many ranks
  CalibrationLoop alone;             ///< K = 0
  CalibrationLoop drafts;            ///< K > 0
  std::optional<Percentiles> loops;  ///< of K = 0, seconds
  /// Of one row of the target and of more; none: what the jobs' all-reduces take is all the link's.
  std::vector<TimedAllReduce> all_reduces;
};

/// Solves for the constants, each from what shows it alone:
///  - a layer's overhead: passes of a model of nothing but layers;
///  - keys and values, a rate for their bytes and one for the operations of attention: by how much passes over few and many rows are longer after more committed tokens;
///  - what a layer takes more whose weights are read from memory: what a pass of the target does beside its products, less keys, values and such layers;
///  - the rate at which a model is read that stays in the cache: passes that draft in loops of the draft with itself; at which it is read back after another: those that follow the target's;
///  - the rate from the second-level cache of a rank's own cores: passes of a model that half of it holds; what it keeps of more: passes of one that fills it;
///  - the rate of `ranks` ranks together from memory: the scoring pass with K = 0;
///  - what more rows cost there: passes of a rank's part of the target after as many of the draft, each longer by what the scoring passes of the two jobs are than such passes over as many rows: more by the root of the drafted tokens, through both, or by their mean where more rows add less;
///  - what a pass takes longer for each byte of the draft: the same passes after those of a smaller one;
///  - what more rows of a model cost that stays in a cache: the passes that score them in loops of the draft with the smaller one;
///  - the all-reduce, a latency and a bandwidth: those of ranks that do nothing else. What the jobs' take beyond is ranks that wait for one another at the memory, and counts as reading;
///  - a loop, a drafted token, and one that stands, beside all that: loops of a model that stays in the cache; what the jobs' loops take beyond is what a target costs that does not (of a drafted token, for each byte of the draft), and
///    where they take less, the draft's first pass is the quicker;
///  - the machine's jitter, delays that come between two collectives now and then: how far P90 and P99 of the loops with K = 0 lie above their P50 (runtime/delays.h).
/// A constant that noise would make negative is 0.
Hardware calibrate(const CalibrationData& data);

/// As files of configs/hardware/ and configs/interconnects/ are written. `interconnect_file`: what the first calls the second; empty with one rank.
std::string hardware_yaml(const Hardware& hardware, const std::string& interconnect_file);
std::string interconnect_yaml(const Interconnect& interconnect);

}  // namespace specdec
