#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/study.h"
#include "runtime/study_summary.h"

/// What a study says: for programs, for spreadsheets, for people.
namespace specdec {

/// All of it for programs, `study.json`: what the report is drawn from.
nlohmann::json summary_json(const Study& study, const std::vector<StudyPoint>& points, const StudySummary& summary);
/// One line a point.
std::string summary_csv(const std::vector<StudyPoint>& points, const StudySummary& summary);
/// For people, as Markdown.
std::string summary_text(const Study& study, const std::vector<StudyPoint>& points, const StudySummary& summary);

}  // namespace specdec
