#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/pass_work.h"

/// What a job would hold and do, from its config and the models' config.json alone: `specdec_dist --plan`.
namespace specdec {

struct RankPlan {
  // Held, in bytes, of the target and, where the draft's placement puts it, of the draft.
  double weights = 0;  ///< of matrices, packed; embedding tables are read where their file is mapped
  double cache = 0;    ///< keys and values of the whole context
  // Done, in bytes read and in floating-point operations, halfway through the job's longest text.
  double token_reads = 0;
  double token_operations = 0;
  double loop_reads = 0;  ///< K passes of the draft, where it is, and one of the target over K + 1 rows
  double loop_operations = 0;

  double held() const { return weights + cache; }
};

struct JobPlan {
  std::vector<RankPlan> ranks;
  std::int64_t k = 0;  ///< 0: no draft
  std::int64_t context = 0;
  PassWork token;  ///< of rank 0: its all-reduces are everybody's
  PassWork loop;
  PassWork drafted;  ///< a pass of a rank's draft
  /// Sent between ranks beside all-reduces, in bytes.
  struct Sent {
    double message =
        0;  ///< that begins a loop, and the tokens of a rank that only drafts; 0 where each rank drafts or takes part in it
    double gathered = 0;  ///< to one rank, for the decision
  };
  Sent token_sent;
  Sent loop_sent;

  /// Of a loop with the passes of a draft that is cut over the ranks.
  std::int64_t loop_all_reduces() const { return loop.all_reduces + k * drafted.all_reduces; }
  double loop_sums_bytes() const;
};

/// Throws kBadInput as the models' configs and the shard plan do.
JobPlan plan_job(const RunConfig& config, int ranks);

/// The memory of a host, and how many of the job's ranks are on it.
struct HostMemory {
  int ranks = 1;
  std::optional<double> available;  ///< bytes; nothing where it is not known
};

/// Whether it fits is said of this host's memory, and of what decode.hardware describes where that says how much it has.
std::string plan_text(const JobPlan& plan, const RunConfig& config, const HostMemory& host);

/// Bytes that this host can still give to programs (MemAvailable of /proc/meminfo).
std::optional<double> available_memory();

}  // namespace specdec
