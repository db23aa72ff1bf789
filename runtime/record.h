#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "parallel/modelled_link.h"
#include "runtime/config.h"
#include "runtime/weights_cache.h"

/// What the decoding loop writes down, as plain data. metrics.h makes figures of it, report.h tables and JSON.
namespace specdec {

/// One round: draft, broadcast, score, decide. Times in seconds on rank 0's monotonic clock.
struct LoopRecord {
  double total = 0;
  double draft = 0;
  double broadcast = 0;
  double score_compute = 0;  ///< the scoring pass less its all-reduces
  double score_all_reduce =
      0;  ///< time inside the pass's all-reduces, waiting for others included; 0 where a device does them (scorer.h)
  double decide = 0;         ///< collectives of the decision, warps of the target's rows, acceptance, resampling
  std::int64_t drafted = 0;  ///< K of this round
  std::int64_t reached = 0;  ///< drafted positions whose acceptance was tried: min(drafted, accepted + 1)
  std::int64_t accepted = 0;
  double beta_sum =
      0;  ///< sum over reached positions of Verifier::acceptance, min(1, p(x)/q(x)): an unbiased estimate of E[beta] per position
  std::int64_t emitted = 0;  ///< tokens that went out: accepted + 1, fewer when a stop or the limit cut the block
  bool ahead = false;        ///< the block had been drafted while the target scored the one before (dedicated_draft.h)
  bool cut = false;  ///< K was cut short by the limit or context, or the block by a stop: not comparable with eq. 1

  double rest() const { return total - draft - broadcast - score_compute - score_all_reduce - decide; }
};

/// One prompt's continuation.
struct OutputRecord {
  std::string prompt;
  std::vector<Token> prompt_ids;
  std::vector<Token> token_ids;  ///< without the prompt
  std::string text;
  std::string finish_reason;  ///< "length", "eos", "stop", "context", "interrupted"; empty while it runs
  double ttft = 0;  ///< seconds from the prompt's start to its first token: prefill of target and draft, first round
  double prefill = 0;
  std::vector<LoopRecord> loops;
};

/// One method under one interconnect over all prompts.
struct RunRecord {
  std::string method;  ///< "autoregressive" or "speculative"
  std::int64_t k = 0;  ///< the largest, where it adapts
  DraftLengthRule draft_length = DraftLengthRule::kFixed;
  InterconnectChoice interconnect;  ///< nothing: the machine's own, and all figures are measured
  ModelledTotals
      modelled;  ///< how the model kept its time on rank 0, prefill included, up to the last prompt that ended
  std::vector<OutputRecord> outputs;
};

/// What a job ran on.
struct MachineRecord {
  std::int64_t ranks = 0;
  std::vector<std::string> hosts;  ///< one name each, in order of their first rank
  std::vector<std::string> cpus;   ///< models of their processors, each once
  std::int64_t threads = 0;        ///< compute threads a rank
  std::string backend;             ///< Backend::description(), the agreed instruction set included
  std::string transport;           ///< Communicator::transport() of the target group
  std::string dtype;               ///< of the target's packed weights
  std::string draft_dtype;         ///< of the draft's; empty without one
  /// c^ of Leviathan et al. 2023: operations of a pass of the draft over those of the whole target's; nothing without a draft.
  std::optional<double> operations_ratio;
  WeightsCacheRecord weights_cache;
};

enum class JobStatus : std::uint8_t { kRunning, kOk, kInterrupted, kFailed };

/// As written in JSON.
constexpr std::string_view name_of(JobStatus status) {
  switch (status) {
    case JobStatus::kRunning:
      return "running";
    case JobStatus::kOk:
      return "ok";
    case JobStatus::kInterrupted:
      return "interrupted";
    case JobStatus::kFailed:
      break;
  }
  return "failed";
}

/// Everything that a report is made of, at any moment of a job.
struct JobRecord {
  RunConfig config;
  MachineRecord machine;
  std::vector<RunRecord> runs;
  JobStatus status = JobStatus::kRunning;
  std::string error;  ///< one line, with kInterrupted and kFailed
};

}  // namespace specdec
