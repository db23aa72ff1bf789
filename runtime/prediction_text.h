#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "runtime/cost_model.h"
#include "runtime/simulation.h"

/// Predictions for people and for programs. Both say that nothing was measured.
namespace specdec {

/// What they are of, as it is shown.
struct PredictionHeader {
  std::string version;  ///< of the program
  std::string target;   ///< as the config names it
  std::string draft;
  const Hardware* hardware = nullptr;
  const PredictedJob* job = nullptr;
  double alpha = 0;
  std::span<const Simulated> simulated;  ///< of each prediction; empty: none were
  std::int64_t loops = 0;                ///< of a simulation
};

/// Milliseconds in a table, a row for each K, the best one marked.
std::string prediction_table(const PredictionHeader& header, std::span<const Prediction> predictions);

/// {schema, version, program, kind: "predicted", hardware, target, draft, placement, ranks, alpha, rows: [{k, ms_per_token, ms_per_loop, tokens_per_loop,
/// speedup, p50_ms, p90_ms, p99_ms (per token), variance_ms2, split_ms, simulated: null or {loops, ms_per_token, p50_ms, p90_ms, p99_ms, loop_p50_ms, loop_p90_ms, loop_p99_ms}}], best_k}. rows[].speedup is over K = 0 whether or not that is among them.
nlohmann::json prediction_json(const PredictionHeader& header, std::span<const Prediction> predictions);

/// A loop's parts, in milliseconds.
nlohmann::json split_json(const LoopTime& loop);

}  // namespace specdec
