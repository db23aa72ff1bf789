#include "runtime/predicted_job.h"

namespace specdec {

PredictedJob predicted_job(const RunConfig& config, int ranks) {
  PredictedJob job{.target = load_model_config(config.target),
                   .target_dtype = config.dtype,
                   .draft_dtype = config.type_of_draft(),
                   .placement = config.placement,
                   .ranks = ranks,
                   .whole_rows = config.decode.sampling.truncates()};
  if (!config.draft.empty()) job.draft = load_model_config(config.draft);
  return job;
}

}  // namespace specdec
