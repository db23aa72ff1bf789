#pragma once

#include <string>

#include "runtime/metrics.h"
#include "runtime/record.h"

namespace specdec {

/// The report for people: machine, one column a method, the comparison, where a loop's time went, and why it was faster or not.
std::string report_text(const JobRecord& job);

/// One sentence: the speed-up as tokens per loop over the loop's cost, and what the cost is made of. Empty without both runs.
std::string explain(const RunMetrics& autoregressive, const RunMetrics& speculative, const Comparison& comparison);

}  // namespace specdec
