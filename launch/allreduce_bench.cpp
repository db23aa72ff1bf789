/// Times the all-reduces of this program's transports beside plain MPI_Allreduce, for users of nccl-tests and of OSU's benchmarks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/agree.h"
#include "parallel/last_words.h"
#include "parallel/program.h"
#include "parallel/rank_place.h"
#include "parallel/transports.h"
#include "runtime/bench_cli.h"
#include "runtime/bench_contenders.h"
#include "runtime/bench_results.h"
#include "runtime/interconnect_load.h"
#include "runtime/stdout_text.h"
#include "runtime/version.h"

namespace specdec {
namespace {

/// What the user sees, on rank 0: rows as they come, and on a terminal what is being measured.
class Display {
 public:
  Display(const BenchHeader& header, bool leads, Progress& progress)
      : progress_(progress), leads_(leads), terminal_(leads && isatty(STDERR_FILENO) == 1) {
    if (leads_) write_text(bench_header_text(header) + bench_table_head(false), progress_);
  }

  void working_on(const std::string& what) const {
    if (terminal_) fmt::print(stderr, "\r\033[K{}", what);
  }
  /// Modelled rows wait for a table of their own.
  void show(const std::vector<BenchRow>& rows) {
    working_on("");
    for (const BenchRow& row : rows) {
      if (row.modelled()) {
        modelled_.push_back(row);
      } else if (leads_) {
        write_text(bench_table_row(row), progress_);
      }
    }
  }
  void finish() const {
    if (!leads_ || modelled_.empty()) return;
    std::string text = fmt::format("\n# {}\n", modelled_.front().interconnect) + bench_table_head(true);
    for (const BenchRow& row : modelled_) text += bench_table_row(row);
    write_text(text, progress_);
  }

 private:
  Progress& progress_;
  bool leads_;
  bool terminal_;
  std::vector<BenchRow> modelled_;
};

/// Measures everything that was asked for. False when the user interrupted it.
bool measure(BenchContenders& contenders, const BenchCommand& command, Display& display, BenchResults& results,
             const std::function<bool()>& stop) {
  const auto take = [&](const std::vector<BenchRow>& rows) {
    results.add(rows);
    display.show(rows);
    return !rows.empty();
  };
  if (command.decode) {
    for (const DType dtype : command.dtypes) {
      for (const std::int64_t rows : command.tokens) {
        display.working_on(fmt::format("a token with {} rows, {} ...", rows, bench_name(dtype)));
        if (!take(contenders.decode(*command.decode, rows, dtype, command.effort, stop))) return false;
      }
    }
    return true;
  }
  for (std::size_t i = 0; i < command.payloads.size(); ++i) {
    const BenchPayload& payload = command.payloads[i];
    display.working_on(fmt::format("{} of {}: {} bytes, {} ...", i + 1, command.payloads.size(), payload.bytes,
                                   bench_name(payload.dtype)));
    if (!take(contenders.all_reduce(payload, command.effort, stop))) return false;
  }
  return true;
}

int run(MpiSession& session, int argc, char** argv) {
  const std::unique_ptr<Communicator> control = session.world("auto");
  const bool leads = session.rank() == 0;
  const BenchCommand command = agree(*control, [&] { return parse_bench_command(argc, argv); });
  if (command.print) {
    if (leads) write_text(*command.print + "\n", session.progress());
    return 0;
  }
  session.watchdog().set_deadline(command.deadline);
  const InterconnectChoice interconnect =
      agree(*control, [&] { return load_choice(command.interconnect, "--interconnect"); });
  BenchContenders contenders(session, *control, command, interconnect);
  const BenchHeader header{.version = version_text("allreduce_bench"),
                           .ranks = rank_places(*control),
                           .interconnect = interconnect,
                           .decode = command.decode ? command.decode->description() : "",
                           .on_device = std::ranges::any_of(command.transports, is_on_device)};
  const auto results = agree(*control, [&] {
    return leads ? std::make_unique<BenchResults>(header, command.json, command.csv)
                 : std::make_unique<BenchResults>(header, "", "");
  });
  const LastWords last_words(session.watchdog(), [&](const Failure& failure) {
    const bool by_user = failure.cause == FailureCause::kInterrupted;
    results->write(by_user ? JobStatus::kInterrupted : JobStatus::kFailed, failure.message);
  });
  Display display(header, leads, session.progress());
  const bool complete =
      measure(contenders, command, display, *results, [&] { return session.watchdog().interrupted() != 0; });
  display.finish();
  agree(*control, [&] {
    results->write(complete ? JobStatus::kOk : JobStatus::kInterrupted, complete ? "" : "interrupted by a signal");
  });
  if (!complete) {
    return leads ? exit_code_of_signal(session.watchdog().interrupted()) : 0;
  }
  if (results->wrong() == 0) return 0;
  if (leads) fmt::print(stderr, "{}: error: {} elements were not the sum\n", session.program(), results->wrong());
  return 1;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  return specdec::run_program(argc, argv,
                              [&](specdec::MpiSession& session) { return specdec::run(session, argc, argv); });
}
