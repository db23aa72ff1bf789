#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/config.h"
#include "runtime/hardware.h"
#include "runtime/pass_work.h"
#include "runtime/placement.h"
#include "runtime/token_times.h"

/// What a pass, a loop and a token take on a machine that need not be here, from a description of it (configs/hardware/). Everything that comes out is
/// *predicted* and must be labelled so.
namespace specdec {

/// A pair of models at work.
struct PredictedJob {
  ModelConfig target;
  ModelConfig draft;
  DType target_dtype = DType::kBF16;
  DType draft_dtype = DType::kBF16;
  Placement placement = Placement::kRank0;
  int ranks = 1;             ///< that the job has
  std::int64_t context = 0;  ///< committed tokens: the middle of what is generated
  bool whole_rows =
      false;  ///< sampling that truncates: a decision takes all logits to one rank, not a few bytes of each row
};

/// Seconds of a pass.
struct PassTime {
  /// max(Hardware::reading_seconds, of the head for as many rows as have logits, + attention / attention_rate, operations / operations_rate) + layers (layer_seconds, and cold_layer_seconds from memory) + pass_seconds
  double work = 0;
  double meeting = 0;  ///< all_reduces T(payload)
  std::int64_t all_reduces = 0;
  double total() const { return work + meeting; }
};

/// `ranks` read at the same time; `in`: where the weights are (Hardware::keeps), and the share of them that a rank's own cache has (share_in_own_cache).
PassTime pass_time(const Hardware& hardware, const PassWork& work, int ranks, WeightsIn in = WeightsIn::kMemory,
                   double in_own_cache = 0);

/// What a decision about `rows` rows takes to one rank, in bytes: all their logits in fp32, or a few bytes of each; and the seconds of that.
double decision_bytes(const ModelConfig& target, bool whole_rows, std::int64_t rows);
double decision_gather(const Interconnect& interconnect, const ModelConfig& target, bool whole_rows, std::int64_t rows,
                       int ranks);

/// A loop of K drafted tokens as it is made up.
struct LoopWork {
  PassTime first_draft;  ///< the target's pass leaves nothing of the draft in a cache that does not hold both
  /// The same after a block of which all tokens stood: the last of them was never fed, and comes with the one that follows it.
  PassTime first_after_all;
  PassTime later_draft;
  double drafted = 0;  ///< seconds of a drafted token beside its pass
  int drafting_ranks = 1;
  int target_ranks = 1;
  /// Of a message between rank 0 and a rank that only drafts, at the least: greedy, without the distributions; 0 without such a rank.
  double order = 0;
  double broadcast = 0;  ///< of the round's message
  PassTime score;        ///< the target's pass over K + 1 rows
  double gather = 0;     ///< what a decision sends to one rank, of all rows together
  double rest = 0;
};

LoopWork loop_work(const Hardware& hardware, const PredictedJob& job, std::int64_t k);

/// Where a loop's time goes, in seconds.
struct LoopTime {
  double draft = 0;      ///< that the target waits for it: K passes, and what a drafted token costs besides
  double broadcast = 0;  ///< of the round's message
  double score = 0;      ///< the target's pass over K + 1 rows
  double rest = 0;       ///< decision included
  double total() const { return draft + broadcast + score + rest; }
};

/// K = 0: autoregressive decoding.
/// `alpha` says how many tokens stand, each of which takes a little, and how often all do (LoopWork::first_after_all); and it counts where a rank of its own drafts ahead: a block that it drafted is the right one when all of the block before stood and the token after it was guessed,
/// alpha^(K + 1), taking the guess to be right as often as a drafted token stands. Then a loop waits for what of the drafting its pass did not hide, else for an order and a
/// new block too. The draft's part is the mean of both.
LoopTime loop_time(const Hardware& hardware, const PredictedJob& job, std::int64_t k, double alpha);

struct Prediction {
  std::int64_t k = 0;
  LoopTime loop;               ///< its mean
  double tokens_per_loop = 1;  ///< eq. 1
  TokenTimes token;
  double speedup = 1;  ///< over K = 0 with the target on all ranks
};

/// For each K of `ks`, at the acceptance rate `alpha`.
std::vector<Prediction> predict(const Hardware& hardware, const PredictedJob& job, double alpha,
                                std::span<const std::int64_t> ks);

/// The K of the smallest mean time per token, the smallest such K on a tie. Not of an empty list.
std::int64_t best_k(std::span<const Prediction> predictions);

}  // namespace specdec
