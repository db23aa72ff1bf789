#pragma once

#include "runtime/study.h"

namespace specdec {

/// Seconds that a job of a point takes, before any has run: the cost model's for typical_hardware(), with `cores` of it here, and what starting takes. Right to a factor of a few; ratios of points
/// are better than that.
double guessed_seconds(const Study& study, const StudyPoint& point, int cores);

}  // namespace specdec
