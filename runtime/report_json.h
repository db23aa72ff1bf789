#pragma once

#include <filesystem>
#include <string>

#include "runtime/record.h"

namespace specdec {

/// Version of the JSON report's schema, docs/report.schema.json: raised when a field changes its meaning or goes; new fields alone
/// leave it.
inline constexpr int kReportVersion = 2;

/// The report of a job, ended or not, as JSON that docs/report.schema.json describes. Text that is not UTF-8 has its bad bytes replaced
/// by U+FFFD.
std::string report_json(const JobRecord& job);

/// Writes report_json to `path`.tmp and renames that, so that a reader never finds half a report. What a killed run leaves there the next
/// one writes over. Throws kBadInput naming the path.
void write_report_json(const JobRecord& job, const std::filesystem::path& path);

}  // namespace specdec
