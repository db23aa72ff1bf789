#pragma once

#include <nlohmann/json.hpp>

namespace specdec {

/// Times what a pass does beside products, in the shapes of Llama 3 8B and on the backend that a run has; prints a table.
nlohmann::json time_pass_kernels();

}  // namespace specdec
