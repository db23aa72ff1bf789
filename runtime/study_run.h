#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/study.h"
#include "runtime/study_results.h"

namespace specdec {

/// Where a study keeps what it has: results.jsonl, study.json, points.csv, summary.md, report.html, jobs/.
struct StudyFolder {
  std::filesystem::path path;
  std::filesystem::path results() const { return path / "results.jsonl"; }
  std::filesystem::path jobs() const { return path / "jobs"; }
};

/// What would run: the points, how many jobs are done, and the time that is left where it can be told. Of a job that has not run, the time is that of its point's other
/// repetitions, else the mean of all that have run; with none of them it is not known.
std::string plan_text(const Study& study, const std::vector<StudyPoint>& points, const StudyResults& results);

struct StudyOutcome {
  int done = 0;  ///< jobs that ended well in this call
  int failed = 0;
  int interrupted = 0;  ///< the signal, or 0
};

/// Runs every job that has not ended well before, in their order; each leaves its line in the results, also one that fails or takes too long. On a terminal, says on
/// standard error where it is and how long it will take.
StudyOutcome run_study(const Study& study, const std::vector<StudyPoint>& points, const StudyFolder& folder,
                       StudyResults& results, const std::filesystem::path& programs);

/// Writes study.json, points.csv and summary.md, and draws report.html with Python and matplotlib. Returns the text of summary.md; `problem`: why there is no picture,
/// one line, or empty.
std::string write_study(const Study& study, const std::vector<StudyPoint>& points, const StudyFolder& folder,
                        const StudyResults& results, std::string& problem);

}  // namespace specdec
