#pragma once

#include <string>

#include "runtime/config.h"

namespace specdec {

/// What of a job is forced and not what models and checkpoints say, "weights: random (seed 0), acceptance: synthetic (alpha 0.8)": it stands in everything that
/// is said of such a job, also of one that has not run. Empty where nothing is.
std::string forced_label(const RunConfig& config);

}  // namespace specdec
