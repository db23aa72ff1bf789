#include "runtime/study_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <utility>

#include "backend/cpu/thread_pool.h"
#include "backend/error.h"
#include "runtime/child_process.h"
#include "runtime/clock.h"
#include "runtime/forced_label.h"
#include "runtime/pass_times_json.h"
#include "runtime/paths.h"
#include "runtime/study_guess.h"
#include "runtime/study_summary.h"
#include "runtime/study_text.h"
#include "runtime/whole_file.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kDrawingSeconds = 300;

std::string_view name_of(PointKind kind) {
  switch (kind) {
    case PointKind::kDecode:
      return "run";
    case PointKind::kAllReduce:
      return "all_reduce";
    case PointKind::kPasses:
      return "passes";
    case PointKind::kLink:
      return "link";
  }
  return "?";
}

json read_json(const fs::path& file) {
  std::ifstream in(file);
  return in ? json::parse(in, nullptr, false) : json(json::value_t::discarded);
}

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// What of a report of specdec_dist the study keeps.
void keep_run(json& row, const json& report) {
  const json& run = report.at("runs").at(0);
  json prompts = json::array();
  for (const json& output : run.at("outputs")) {
    prompts.push_back({{"prompt_tokens", output.at("prompt_ids").size()},
                       {"tokens", output.at("token_ids").size()},
                       {"loops", output.at("loops")},
                       {"decode_ms", output.at("decode_ms")},
                       {"ttft_ms", output.at("ttft_ms")}});
  }
  row["run"] = {{"metrics", run.at("metrics")}, {"collectives", run.at("collectives")}, {"prompts", prompts}};
  row["machine"] = report.at("machine");
  row["program"] = report.at("program");
  row["modelled"] = run.at("interconnect").at("modelled");
}

/// An all-reduce that is timed has no models.
std::string forced_of(const StudyPoint& point) { return times_all_reduces(point) ? "" : forced_label(point.config); }

json row_of(const StudyPoint& point, const StudyJob& job, const std::vector<std::string>& command,
            const ChildResult& child, const Study& study, const fs::path& report_file) {
  json row = {{"key", point.key},
              {"repeat", job.repeat},
              {"label", point.label()},
              {"kind", name_of(point.kind)},
              {"ranks", point.ranks},
              {"k", point.k},
              {"interconnect", point.interconnect},
              {"placement", name_of(point.placement)},
              {"models", point.models},
              {"method", point.method},
              {"forced", forced_of(point)},
              {"command", command},
              {"seconds", child.seconds},
              {"ended", utc_now()}};
  std::string error;
  if (child.timed_out) {
    error = fmt::format("took longer than {:g} s (timeout)", study.timeout);
  } else if (child.code != 0) {
    error = fmt::format("exit code {}: {}", child.code, child.last_line);
  } else {
    try {
      const json report = read_json(report_file);
      if (point.kind == PointKind::kPasses) {
        for (const int ranks : study.ranks) static_cast<void>(pass_times_from_json(report, ranks));
        row["passes"] = report;
      } else if (times_all_reduces(point)) {
        row["rows"] = report.at("rows");
      } else {
        keep_run(row, report);
      }
    } catch (const json::exception& why) {
      error = fmt::format("its report is not as expected: {}", why.what());
    }
  }
  row["status"] = error.empty() ? "ok" : child.timed_out ? "timeout" : "failed";
  row["error"] = error.empty() ? json() : json(error);
  return row;
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

/// Seconds that jobs take: of a point that has run what it took, of any other its guess, by as much as those that have run took longer than theirs.
class Estimate {
 public:
  Estimate(const Study& study, const std::vector<StudyPoint>& points, const StudyResults& results)
      : of_(points.size()) {
    const auto cores = static_cast<int>(own_cores().size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      guessed_.push_back(guess(study, points[i], cores));
      for (int repeat = 0; repeat < repeats_of(study, points[i]); ++repeat) {
        if (const json* const row = results.finished(points[i].key, repeat)) add(i, row->at("seconds").get<double>());
      }
    }
  }
  void add(std::size_t point, double seconds) {
    of_[point].first += seconds;
    ++of_[point].second;
    took_ += seconds;
    guess_of_these_ += guessed_[point];
  }
  /// Of these jobs together.
  double of(const std::vector<StudyJob>& jobs, std::size_t begin) const {
    const double longer = is_guess() ? 1 : took_ / guess_of_these_;
    double sum = 0;
    for (std::size_t i = begin; i < jobs.size(); ++i) {
      const auto& [seconds, count] = of_[jobs[i].point];
      sum += count > 0 ? seconds / count : longer * guessed_[jobs[i].point];
    }
    return sum;
  }
  /// Whether none has ever run.
  bool is_guess() const { return guess_of_these_ == 0; }

 private:
  static double guess(const Study& study, const StudyPoint& point, int cores) {
    try {
      return guessed_seconds(study, point, cores);
    } catch (const Error&) {  // of a job that will say so itself
      return 1;
    }
  }

  std::vector<double> guessed_;
  std::vector<std::pair<double, int>> of_;
  double took_ = 0;
  double guess_of_these_ = 0;
};

std::vector<StudyJob> left_of(const Study& study, const std::vector<StudyPoint>& points, const StudyResults& results) {
  std::vector<StudyJob> jobs = order_of(study, points);
  std::erase_if(jobs,
                [&](const StudyJob& job) { return results.finished(points[job.point].key, job.repeat) != nullptr; });
  return jobs;
}

/// One line that is written over, on a terminal; nothing in a pipe.
class ProgressLine {
 public:
  void show(const std::string& text) {
    if (!terminal_) return;
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
    shown_ = true;
  }
  ~ProgressLine() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
};

/// Draws with the first Python that has matplotlib; returns why there is none, or nothing.
std::string draw(const StudyFolder& folder) {
  const fs::path script = share_directory() / "report/study_report.py";
  const fs::path log = folder.path / "report.log";
  JobSignals signals;
  std::string why;
  const char* const chosen = std::getenv("SPECDEC_PYTHON");
  for (const char* python : {chosen, "python3", "/usr/bin/python3"}) {
    if (python == nullptr) continue;
    try {
      const ChildResult result = run_child(signals, {python, script, folder.path}, kDrawingSeconds, log);
      if (result.code == 0) {
        std::error_code ignored;
        fs::remove(log, ignored);
        return {};
      }
      why = result.timed_out ? "it took too long" : result.last_line;
      if (result.interrupted != 0) return "interrupted";
    } catch (const Error& error) {
      why = error.what();
    }
    if (python == chosen) break;
  }
  return why;
}

}  // namespace

std::string plan_text(const Study& study, const std::vector<StudyPoint>& points, const StudyResults& results) {
  const std::size_t all = order_of(study, points).size();
  const std::vector<StudyJob> left = left_of(study, points, results);
  std::string text =
      fmt::format("{}: {} points, {} jobs, {} done\n\n", study.name, points.size(), all, all - left.size());
  for (const StudyPoint& point : points) {
    const int repeats = repeats_of(study, point);
    int done = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) done += results.finished(point.key, repeat) != nullptr ? 1 : 0;
    text += fmt::format("  {} of {}  {}\n", done, repeats, point.label());
  }
  std::map<std::string, int> forced;
  for (const StudyPoint& point : points) ++forced[forced_of(point)];
  forced.erase("");
  if (!forced.empty()) text += "\n";
  for (const auto& [label, count] : forced) {
    text += fmt::format("Forced in {} of {} points, and not what models say: {}\n", count, points.size(), label);
  }
  const Estimate estimate(study, points, results);
  const std::string seconds = time_text(estimate.of(left, 0));
  if (left.empty()) {
    text += "\nNothing is left to run.\n";
  } else if (estimate.is_guess()) {
    text += fmt::format(
        "\nEstimated time of the {} jobs: {}, a guess from the models' sizes, to a factor of a few until jobs "
        "have run; at most {:g} s each.\n",
        left.size(), seconds, study.timeout);
  } else {
    text += fmt::format("\nEstimated time of the {} jobs that are left: {}.\n", left.size(), seconds);
  }
  return text;
}

StudyOutcome run_study(const Study& study, const std::vector<StudyPoint>& points, const StudyFolder& folder,
                       StudyResults& results, const fs::path& programs) {
  std::error_code error;
  fs::create_directories(folder.jobs(), error);
  if (error) throw_bad_input(fmt::format("--out: '{}' cannot be made: {}", folder.jobs().string(), error.message()));
  const std::vector<StudyJob> jobs = left_of(study, points, results);
  Estimate estimate(study, points, results);
  StudyOutcome outcome;
  ProgressLine progress;
  JobSignals signals;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const StudyPoint& point = points[jobs[i].point];
    progress.show(fmt::format("[{}/{}] {}, {}{} left", i + 1, jobs.size(), point.label(),
                              estimate.is_guess() ? "perhaps " : "", time_text(estimate.of(jobs, i))));
    const std::string name = fmt::format("{}-{}", point.key, jobs[i].repeat);
    const fs::path report = folder.jobs() / (name + ".json");
    const fs::path log = folder.jobs() / (name + ".log");
    const std::vector<std::string> command = command_of(study, point, jobs[i].repeat, programs, report);
    const ChildResult child = run_child(signals, command, study.timeout, log);
    outcome.interrupted = child.interrupted;
    if (outcome.interrupted != 0) break;
    const json row = row_of(point, jobs[i], command, child, study, report);
    results.append(row);
    fs::remove(report, error);
    if (row.at("status") == "ok") {
      fs::remove(log, error);
      estimate.add(jobs[i].point, child.seconds);
      ++outcome.done;
    } else {
      ++outcome.failed;
    }
  }
  return outcome;
}

std::string write_study(const Study& study, const std::vector<StudyPoint>& points, const StudyFolder& folder,
                        const StudyResults& results, std::string& problem) {
  const StudySummary summary = summarise(study, points, results);
  const std::string text = summary_text(study, points, summary);
  constexpr const char* kFlag = "--out";
  write_whole_file(folder.path / "study.json", summary_json(study, points, summary).dump(1) + "\n", kFlag);
  write_whole_file(folder.path / "points.csv", summary_csv(points, summary), kFlag);
  write_whole_file(folder.path / "summary.md", text, kFlag);
  problem = draw(folder);
  return text;
}

}  // namespace specdec
