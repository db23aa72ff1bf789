#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config.h"
#include "runtime/yaml_map.h"

/// The one table of configuration keys: it reads YAML and --set, checks types and ranges, makes RunConfig travel, and prints
/// docs/configuration.md.
namespace specdec {

struct ConfigKey {
  std::string name;          ///< "decode.top_p"
  std::string type;          ///< "number", as in the table
  std::string default_text;  ///< as one writes it
  std::string accepts;       ///< the range: "a number above 0, at most 1"
  std::string help;          ///< one line
  bool plain = false;        ///< a value given to --set stands for itself and is not read as YAML
  std::function<void(RunConfig&, const YAML::Node&, const YamlPlace&)> assign;
  std::function<nlohmann::json(const RunConfig&)> write;
  std::function<void(RunConfig&, const nlohmann::json&)> read;
};

const std::vector<ConfigKey>& config_keys();
/// Null when there is none of this name.
const ConfigKey* find_key(std::string_view name);
/// Of all of them.
const KeyNames& config_key_names();
/// docs/configuration.md as it must be.
std::string configuration_page();

}  // namespace specdec
