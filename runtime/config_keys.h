#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config.h"

namespace YAML {
class Node;
}

/// The one table of configuration keys: it reads YAML and --set, checks types and ranges, makes RunConfig travel, and prints
/// docs/configuration.md.
namespace specdec {

/// Where a value was written, for errors.
struct ConfigPlace {
  std::string name;                 ///< the file, or "--set"
  std::filesystem::path directory;  ///< where the files that it names are looked up
  bool has_lines = true;            ///< false for --set: errors then name no line
  int null_line = -1;               ///< for a key without a value: YAML marks only what follows it

  /// "NAME:LINE: KEY", or without the line.
  std::string at(const YAML::Node& node, std::string_view key) const;
};

/// Throws kBadInput "F:LINE: KEY: found FOUND, expected EXPECTED".
[[noreturn]] void reject(const ConfigPlace& place, const YAML::Node& node, std::string_view key, std::string_view found,
                         std::string_view expected);
/// What a node holds, in a few words: "'four'", "a list", "a map", "nothing".
std::string describe(const YAML::Node& node);

struct ConfigKey {
  std::string name;          ///< "decode.top_p"
  std::string type;          ///< "number", as in the table
  std::string default_text;  ///< as one writes it
  std::string accepts;       ///< the range: "a number above 0, at most 1"
  std::string help;          ///< one line
  bool plain = false;        ///< a value given to --set stands for itself and is not read as YAML
  std::function<void(RunConfig&, const YAML::Node&, const ConfigPlace&)> assign;
  std::function<nlohmann::json(const RunConfig&)> write;
  std::function<void(RunConfig&, const nlohmann::json&)> read;
};

const std::vector<ConfigKey>& config_keys();
/// Null when there is none of this name.
const ConfigKey* find_key(std::string_view name);
/// "; did you mean 'decode.k'?", or nothing when no candidate is near.
std::string suggestion(std::string_view name, std::span<const std::string> candidates);
/// The same among key_names(); a key in the wrong section is found by its last part.
std::string key_suggestion(std::string_view name);
/// The names of all keys and sections.
std::vector<std::string> key_names();
/// docs/configuration.md as it must be.
std::string configuration_page();

}  // namespace specdec
