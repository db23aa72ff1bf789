#include "runtime/journal.h"

#include <algorithm>
#include <utility>

#include "backend/error.h"
#include "runtime/report_json.h"

namespace specdec {

RunJournal::RunJournal(RunConfig config, MachineRecord machine) {
  job_.config = std::move(config);
  job_.machine = std::move(machine);
}

RunRecord& RunJournal::run() {
  check(!job_.runs.empty(), "journal: begin_run comes first");
  return job_.runs[run_];
}

OutputRecord& RunJournal::output() {
  check(!run().outputs.empty() && run().outputs.back().finish_reason.empty(), "journal: begin_output comes first");
  return run().outputs.back();
}

void RunJournal::begin_run(Method method, std::int64_t k, const InterconnectChoice& interconnect) {
  const std::scoped_lock lock(mutex_);
  ++revision_;
  const auto known = std::ranges::find_if(job_.runs, [&](const RunRecord& run) {
    return run.method == name_of(method) && name_of(run.interconnect) == name_of(interconnect);
  });
  run_ = static_cast<std::size_t>(known - job_.runs.begin());
  if (known == job_.runs.end()) {
    RunRecord record;
    record.method = name_of(method);
    record.k = k;
    if (method == Method::kSpeculative) record.draft_length = job_.config.decode.draft_length;
    record.interconnect = interconnect;
    job_.runs.push_back(std::move(record));
  }
}

void RunJournal::begin_output(std::string prompt, std::vector<Token> prompt_ids) {
  const std::scoped_lock lock(mutex_);
  ++revision_;
  auto& outputs = run().outputs;
  check(outputs.empty() || !outputs.back().finish_reason.empty(), "journal: finish_output comes before begin_output");
  OutputRecord record;
  record.prompt = std::move(prompt);
  record.prompt_ids = std::move(prompt_ids);
  outputs.push_back(std::move(record));
}

void RunJournal::set_prefill(double seconds) {
  const std::scoped_lock lock(mutex_);
  ++revision_;
  output().prefill = seconds;
}

void RunJournal::append(std::span<const Token> tokens, std::string_view text, const LoopRecord& loop) {
  const std::scoped_lock lock(mutex_);
  ++revision_;
  OutputRecord& record = output();
  if (record.loops.empty()) {
    record.ttft = record.prefill + loop.total;
  }
  record.token_ids.insert(record.token_ids.end(), tokens.begin(), tokens.end());
  record.text += text;
  record.loops.push_back(loop);
}

void RunJournal::finish_output(std::string_view reason, std::string_view text_tail) {
  const std::scoped_lock lock(mutex_);
  ++revision_;
  OutputRecord& record = output();
  record.text += text_tail;
  record.finish_reason = reason;
}

void RunJournal::add_modelled(const ModelledTotals& totals) {
  const std::scoped_lock lock(mutex_);
  ++revision_;
  run().modelled += totals;
}

void RunJournal::finish(JobStatus status, std::string error) {
  const std::scoped_lock lock(mutex_);
  if (job_.status != JobStatus::kRunning) {
    return;
  }
  ++revision_;
  job_.status = status;
  job_.error = std::move(error);
  for (RunRecord& record : job_.runs) {
    if (!record.outputs.empty() && record.outputs.back().finish_reason.empty()) {
      record.outputs.back().finish_reason = "interrupted";
    }
  }
}

std::uint64_t RunJournal::revision() const {
  const std::scoped_lock lock(mutex_);
  return revision_;
}

JobRecord RunJournal::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return job_;
}

void RunJournal::write_json(const std::filesystem::path& path) const { write_report_json(snapshot(), path); }

}  // namespace specdec
