/// Generates text with a target model cut over the ranks of an MPI job and a draft model on rank 0, and says how much faster
/// that was than without the draft, and why.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/error.h"
#include "parallel/agree.h"
#include "parallel/last_words.h"
#include "parallel/program.h"
#include "runtime/agree_threads.h"
#include "runtime/cli.h"
#include "runtime/config_load.h"
#include "runtime/job.h"
#include "runtime/job_groups.h"
#include "runtime/job_plan.h"
#include "runtime/journal.h"
#include "runtime/journal_file.h"
#include "runtime/program_trace.h"
#include "runtime/report.h"
#include "runtime/stdout_text.h"

namespace specdec {
namespace {

/// Writes down what a run emits and, for the run whose text is wanted, streams it.
class Transcript final : public OutputSink {
 public:
  Transcript(RunJournal& journal, Progress& progress, bool stream)
      : journal_(journal), progress_(progress), stream_(stream) {}

  void begin_output(const std::string& prompt, std::span<const Token> prompt_ids) override {
    journal_.begin_output(prompt, {prompt_ids.begin(), prompt_ids.end()});
  }
  void prefilled(double seconds) override { journal_.set_prefill(seconds); }
  void append(std::span<const Token> tokens, const std::string& text, const LoopRecord& loop) override {
    journal_.append(tokens, text, loop);
    stream(text);
  }
  void finish_output(const std::string& reason, const std::string& text) override {
    journal_.finish_output(reason, text);
    stream(text + "\n");
  }

 private:
  void stream(std::string_view text) { stream_ = stream_ && write_text(text, progress_); }

  RunJournal& journal_;
  Progress& progress_;
  bool stream_;
};

/// Decodes all prompts. Interconnects and, with `compare`, methods take turns prompt by prompt, so that drifts of the machine fall on all
/// alike; the text that streams is the configured method's under the first interconnect. False when the user interrupted it.
bool decode(Job& job, const RunConfig& config, Progress& progress, bool stream, RunJournal& journal) {
  for (std::size_t prompt = 0; prompt < job.prompts().size(); ++prompt) {
    for (std::size_t link = 0; link < config.interconnects.size(); ++link) {
      for (const Method method : config.methods()) {
        journal.begin_run(method, method == Method::kSpeculative ? config.decode.k : 0, config.interconnects[link]);
        Transcript transcript(journal, progress, stream && link == 0 && method == config.decode.method);
        const bool complete = job.generate(method, prompt, transcript, link);
        journal.add_modelled(job.modelled());
        if (!complete) {
          return false;
        }
      }
    }
  }
  return true;
}

/// Rank 0's part of the job. However it ends, the report on disk says so.
int lead(Job& job, MpiSession& session, const RunConfig& config, const CommandLine& command, const std::string& note) {
  const MachineRecord machine = job.machine(session.hosts());
  RunJournal journal(config, machine);
  std::optional<JournalFile> file;
  if (!command.json.empty()) {
    file.emplace(journal, command.json);
  }
  const auto close = [&](JobStatus status, const std::string& why) {
    journal.finish(status, why);
    if (file) {
      file->write();
    }
  };
  const LastWords last_words(session.watchdog(), [&](const Failure& failure) {
    const bool by_user = failure.cause == FailureCause::kInterrupted;
    close(by_user ? JobStatus::kInterrupted : JobStatus::kFailed, failure.message);
  });
  if (file) {
    file->start();
  }
  if (!note.empty()) {
    fmt::print(stderr, "{}: note: {}\n", session.program(), note);
  }
  if (config.weights.random) {
    fmt::print(stderr, "{}: note: {}: the text means nothing\n", session.program(), label_of(config.weights));
  }
  if (config.acceptance.synthetic) {
    fmt::print(stderr, "{}: note: {}: the text of speculative decoding means nothing\n", session.program(),
               label_of(config.acceptance));
  }
  if (const std::string& problem = machine.weights_cache.problem; !problem.empty()) {
    fmt::print(stderr, "{}: warning: {}; weights were packed and not kept\n", session.program(), problem);
  }
  bool complete = false;
  try {
    job.warm_up();
    complete = decode(job, config, session.progress(), command.stream, journal);
  } catch (const std::exception& error) {
    try {
      close(JobStatus::kFailed, error.what());
    } catch (const Error&) {
      // Why the work ended is the news, not that it could not be written down.
    }
    throw;
  }
  job.end();
  close(complete ? JobStatus::kOk : JobStatus::kInterrupted, complete ? "" : "interrupted by a signal");
  if (command.report) {
    std::fputs(report_text(journal.snapshot()).c_str(), stderr);
  }
  return complete ? 0 : exit_code_of_signal(session.watchdog().interrupted());
}

/// The program's name with the job's interconnects, if any is modelled, and with what its weights and its acceptance are, if made up: a trace must not be
/// taken for one of this machine alone, or of models that are worth something.
std::string labelled(const std::string& program, const RunConfig& config) {
  std::string interconnects;
  bool modelled = false;
  for (const InterconnectChoice& choice : config.interconnects) {
    interconnects += (interconnects.empty() ? "" : ", ") + label_of(choice);
    modelled = modelled || choice;
  }
  std::string text = program + (modelled ? " (interconnect: " + interconnects + ")" : "");
  for (const std::string& label : {label_of(config.weights), label_of(config.acceptance)}) {
    if (!label.empty()) text += " (" + label + ")";
  }
  return text;
}

/// `ranks`: 0 for those of this job.
void print_plan(MpiSession& session, const RunConfig& config, int ranks) {
  const auto here = ranks > 0 ? ranks : std::ranges::count(session.hosts(), session.host());
  const JobPlan plan = plan_job(config, ranks > 0 ? ranks : session.size());
  write_text(plan_text(plan, config, {.ranks = static_cast<int>(here), .available = available_memory()}),
             session.progress());
}

int run(MpiSession& session, int argc, char** argv) {
  const std::unique_ptr<Communicator> control = session.world("auto");
  const CommandLine command = agree(*control, [&] { return parse_command_line(argc, argv); });
  if (command.print) {
    if (session.rank() == 0) {
      write_text(*command.print + "\n", session.progress());
    }
    return 0;
  }
  std::string text = agree(*control, [&] { return session.rank() == 0 ? serialise(make_run_config(command)) : ""; });
  broadcast_string(*control, text);
  RunConfig config = deserialise(text);
  if (command.plan) {
    agree(*control, [&] {
      if (session.rank() == 0) print_plan(session, config, *command.plan);
    });
    return 0;
  }
  const AgreedThreads threads =
      agree_on_threads(*control, config.parallel.threads, session.cores(), "parallel.threads");
  config.parallel.threads = threads.threads;  // known to all that comes, the report included
  session.watchdog().set_deadline(config.parallel.deadline);

  JobGroups groups(session, *control, config);
  ProgramTrace trace(session, command.trace, labelled(session.program(), config), *control);
  Job job(
      config, groups, session.progress(), [&] { return session.watchdog().interrupted() != 0; }, trace.tracer(),
      session.local_rank());
  int code = 0;
  if (session.rank() == 0) {
    code = lead(job, session, config, command, threads.note);
  } else {
    job.follow();
  }
  std::vector<Communicator*> of_trace{&groups.control(), &groups.target()};
  if (groups.drafts() != nullptr) of_trace.push_back(groups.drafts());
  trace.finish(code == 0 ? "ok" : "interrupted by a signal", of_trace);
  return code;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  return specdec::run_program(argc, argv,
                              [&](specdec::MpiSession& session) { return specdec::run(session, argc, argv); });
}
