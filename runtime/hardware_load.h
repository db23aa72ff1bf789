#pragma once

#include <filesystem>
#include <string>

#include "runtime/hardware.h"

/// YAML to Hardware (configs/hardware/), with errors as interconnect_load.h has them.
namespace specdec {

/// The preset or file of this name (find_hardware in paths.h).
Hardware load_hardware(const std::string& name, const std::string& place);
/// From text, which may give another `name`; its interconnect is looked up beside `directory` too.
Hardware parse_hardware(const std::string& yaml, const std::string& place, const std::string& name,
                        const std::filesystem::path& directory = {});

}  // namespace specdec
