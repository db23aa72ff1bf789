#pragma once

#include "runtime/config.h"
#include "runtime/cost_model.h"

namespace specdec {

/// What a config says of a job: its models, whose own configs are read, their types, where the draft runs, how it samples. After no context.
PredictedJob predicted_job(const RunConfig& config, int ranks);

}  // namespace specdec
