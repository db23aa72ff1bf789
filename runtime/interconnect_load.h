#pragma once

#include <filesystem>
#include <string>

#include "runtime/interconnect_choice.h"

/// YAML to Interconnect (configs/interconnects/). Every error is kBadInput and one line: it begins with `place`, which says where the name
/// or the text was written ("run.yaml:2: interconnect", "--interconnect"), and has the file's line, key, what was found, what was
/// expected, the nearest name.
namespace specdec {

/// What a config and a flag take: `native`, or as load_interconnect.
InterconnectChoice load_choice(const std::string& name, const std::string& place,
                               const std::filesystem::path& directory = {});
/// The preset or file of this name; `directory` is that of the config which names it (find_interconnect in paths.h).
Interconnect load_interconnect(const std::string& name, const std::string& place,
                               const std::filesystem::path& directory = {});
/// From text, which may give another `name`.
Interconnect parse_interconnect(const std::string& yaml, const std::string& place, const std::string& name);

}  // namespace specdec
