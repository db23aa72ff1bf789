#pragma once

#include <string>
#include <string_view>

#include "parallel/interconnect.h"

/// YAML to Interconnect (configs/interconnects/). Every error is kBadInput and one line: file, line, key, what was found, what was
/// expected, the nearest name.
namespace specdec {

/// The preset or file of this name (paths.h, find_interconnect).
Interconnect load_interconnect(std::string_view name_or_path);
/// From text; `file` stands for it in errors.
Interconnect parse_interconnect(const std::string& yaml, const std::string& file);

}  // namespace specdec
