#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/interconnect_choice.h"

namespace specdec {

/// {"name": ..., "modelled": ..., "model": ...}; the model's parameters in seconds and bytes a second, null for the machine's own. Every number
/// survives the way there and back.
nlohmann::json interconnect_json(const InterconnectChoice& choice);
InterconnectChoice interconnect_from_json(const nlohmann::json& json);

}  // namespace specdec
