#pragma once

#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "runtime/record.h"

namespace specdec {

/// What rank 0 writes down while it decodes, so that whoever ends the job, `main` or the watchdog's thread, can report all that
/// was accepted up to then. Every call holds one mutex for as long as it takes to move or copy plain data; the decoding thread
/// never waits for a file.
class RunJournal {
 public:
  explicit RunJournal(RunConfig config, MachineRecord machine = {});

  /// What follows belongs to the run of `method` under `interconnect`, which is begun with the first call: runs may take turns, prompt by
  /// prompt. begin_output appends to that run, append and finish_output to its last output. Calls out of order throw kInternal.
  void begin_run(Method method, std::int64_t k, const InterconnectChoice& interconnect = std::nullopt);
  void begin_output(std::string prompt, std::vector<Token> prompt_ids);
  /// Seconds of the prompt's prefill; set before the first append.
  void set_prefill(double seconds);
  /// One round: its tokens, the text that became certain with them, and its times. The first append of an output also sets its
  /// time to the first token: prefill + loop.total.
  void append(std::span<const Token> tokens, std::string_view text, const LoopRecord& loop);
  /// `text_tail`: what StreamDecoder::finish() still held.
  void finish_output(std::string_view reason, std::string_view text_tail = {});

  /// What the modelled interconnect of this run did meanwhile; adds up.
  void add_modelled(const ModelledTotals& totals);

  /// Ends the job: no output stays unfinished (those that run become "interrupted"). The first call counts: the decoding thread may go on
  /// for a moment after the watchdog has ended the job, and fail because of that.
  void finish(JobStatus status, std::string error = {});

  JobRecord snapshot() const;
  /// Changes with every change of the journal.
  std::uint64_t revision() const;
  /// The report (report_json.h) as a whole file, at once: a reader finds the old file or the new one, never half of one. Throws
  /// kBadInput naming the path when it cannot be written.
  void write_json(const std::filesystem::path& path) const;

 private:
  RunRecord& run();
  OutputRecord& output();

  mutable std::mutex mutex_;
  JobRecord job_;
  std::uint64_t revision_ = 0;
  std::size_t run_ = 0;  ///< the run that is being written
};

}  // namespace specdec
