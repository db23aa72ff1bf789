#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace specdec {

/// A value of a JSON file as an error message shows it: short and valid UTF-8, whatever the file holds.
std::string shown(const nlohmann::json& value);

}  // namespace specdec
