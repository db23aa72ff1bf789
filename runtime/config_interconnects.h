#pragma once

#include <vector>

#include "runtime/config.h"
#include "runtime/yaml_value.h"

namespace specdec {

/// What `interconnect` names: `native`, a preset, a file, or a list of them, each once.
std::vector<InterconnectChoice> read_interconnects(const YAML::Node& node, const YamlPlace& place);

}  // namespace specdec
