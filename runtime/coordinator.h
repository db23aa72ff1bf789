#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/tokenizer.h"
#include "runtime/draft_length.h"
#include "runtime/drafter.h"
#include "runtime/record.h"
#include "runtime/round.h"
#include "runtime/scorer.h"

namespace specdec {

/// When a continuation ends.
struct EndRules {
  std::int64_t max_new_tokens = 128;
  std::vector<Token> eos;         ///< empty when they are to be ignored
  std::vector<std::string> stop;  ///< strings; the text ends before the first one, also inside an accepted block
};

/// Hears what is decided as it is decided.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void begin_output(const std::string& prompt, std::span<const Token> prompt_ids) = 0;
  /// The prompt is in the caches of target and draft.
  virtual void prefilled(double seconds) = 0;
  /// One round's tokens, the text that became certain with them, and where its time went.
  virtual void append(std::span<const Token> tokens, const std::string& text, const LoopRecord& loop) = 0;
  /// `reason`: "length", "eos", "stop", "context" or "interrupted". `text`: what was held back until the end.
  virtual void finish_output(const std::string& reason, const std::string& text) = 0;
};

/// Rank 0 of a job: drafts, sends the round, scores with the others, accepts, emits (docs/protocol.md, "The round").
/// Autoregressive decoding is the same loop with nothing drafted.
class Coordinator {
 public:
  /// `drafter` may be null: then K is 0 in every round. `tokenizer` may be null: then text is ids.
  /// `interrupted` is asked once a round.
  Coordinator(Scorer& scorer, RoundChannel& channel, Drafter* drafter, DraftLength& draft_length,
              const Tokenizer* tokenizer, EndRules rules, std::function<bool()> interrupted, Tracer* tracer = nullptr);

  /// Continues one prompt (at least one token, fewer than the context), all messages under the job's interconnect number `interconnect`.
  /// Returns false when the job was interrupted meanwhile.
  bool generate(std::uint32_t sequence, const std::string& prompt, std::span<const Token> prompt_ids, OutputSink& sink,
                std::int32_t interconnect = 0);

 private:
  class Sequence;

  Scorer& scorer_;
  RoundChannel& channel_;
  Drafter* drafter_;
  DraftLength& draft_length_;
  const Tokenizer* tokenizer_;
  EndRules rules_;
  std::function<bool()> interrupted_;
  Tracer* tracer_;
  Round round_;
  DraftBlock block_;
};

/// Tells the workers that the job is over. On rank 0.
void end_job(RoundChannel& channel);

/// Every other rank of the target group: follows the rounds that rank 0 sends until the job is over. `drafter`: this rank's, where all draft.
void run_worker(Scorer& scorer, RoundChannel& channel, Tracer* tracer = nullptr, Drafter* drafter = nullptr);

}  // namespace specdec
