#pragma once

#include <map>
#include <nlohmann/json.hpp>

#include "runtime/pass_times.h"

namespace specdec {

/// What `specdec_study --time-passes` prints: by ranks, times in ms.
nlohmann::json pass_times_json(const std::map<int, PassTimes>& times);

/// Of so many ranks. Throws nlohmann::json::exception where something is missing or no number.
PassTimes pass_times_from_json(const nlohmann::json& json, int ranks);

}  // namespace specdec
