#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "runtime/hardware.h"
#include "runtime/pass_work.h"
#include "runtime/token_times.h"

/// What a pass, a loop and a token take on a machine that need not be here, from a description of it (configs/hardware/). Everything that comes out is
/// *predicted* and must be labelled so.
namespace specdec {

/// Where the draft runs (design, section 4).
enum class Placement : std::uint8_t {
  kRank0,       ///< on one rank, which tells the others what it drafted
  kReplicated,  ///< whole on every rank, each with the same random numbers: nobody is told
  kSharded,     ///< cut over all ranks, as the target is
};

std::string_view name_of(Placement placement);
inline constexpr Placement kPlacements[] = {Placement::kRank0, Placement::kReplicated, Placement::kSharded};

/// A pair of models at work.
struct PredictedJob {
  ModelConfig target;
  ModelConfig draft;
  DType target_dtype = DType::kBF16;
  DType draft_dtype = DType::kBF16;
  Placement placement = Placement::kRank0;
  int ranks = 1;
  std::int64_t context = 0;  ///< committed tokens: the middle of what is generated
};

/// `cached`: its weights are still in a cache (Hardware::keeps).
/// Seconds of a pass: the longer of reading and computing, its all-reduces, and what a layer and a pass cost besides. `ranks` read at the same time.
///   max((weight_bytes rows_cost + cache_bytes) / read_rate, operations / operations_rate) + layers layer_seconds + all_reduces T(payload) + pass_seconds
double pass_seconds(const Hardware& hardware, const PassWork& work, int ranks, bool cached = false);

/// Where a loop's time goes, in seconds.
struct LoopTime {
  double draft = 0;      ///< K passes, and what a drafted token costs besides
  double broadcast = 0;  ///< of the round's message
  double score = 0;      ///< the target's pass over K + 1 rows
  double rest = 0;
  double total() const { return draft + broadcast + score + rest; }
};

/// K = 0: autoregressive decoding.
LoopTime loop_time(const Hardware& hardware, const PredictedJob& job, std::int64_t k);

struct Prediction {
  std::int64_t k = 0;
  LoopTime loop;
  double tokens_per_loop = 1;  ///< eq. 1
  TokenTimes token;
  double speedup = 1;  ///< over K = 0
};

/// For each K of `ks`, at the acceptance rate `alpha`.
std::vector<Prediction> predict(const Hardware& hardware, const PredictedJob& job, double alpha,
                                std::span<const std::int64_t> ks);

/// The K of the smallest mean time per token, the smallest such K on a tie. Not of an empty list.
std::int64_t best_k(std::span<const Prediction> predictions);

}  // namespace specdec
