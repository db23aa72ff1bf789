#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/config.h"
#include "runtime/yaml_map.h"

/// YAML to RunConfig. Every error is kBadInput and one line: file, line, key, what was found, what was expected.
namespace specdec {

/// A configuration and which of its keys somebody wrote; the others have their defaults.
struct LoadedConfig {
  RunConfig run;
  GivenKeys given;
};

/// Reads `file`. Model paths stay as written until find_model (paths.h); a prompt file is read here, relative to the file's directory.
LoadedConfig load_config(const std::filesystem::path& file);
/// As load_config, from text; `name` stands for the file in errors, `directory` is where the files that it names are looked up.
LoadedConfig parse_config(const std::string& yaml, const std::string& name, const std::filesystem::path& directory);

/// Changes one key; `assignment` is "key=value", the value as in YAML (for a path or a word: as it stands).
void set_key(LoadedConfig& config, std::string_view assignment);

/// The defaults that depend on whether there is a draft, and the checks between keys: a target, prompts, a draft where the method or
/// `compare` needs one.
void complete(LoadedConfig& config);

/// RunConfig as one line of JSON and back: rank 0 reads the files and broadcasts this.
std::string serialise(const RunConfig& config);
RunConfig deserialise(const std::string& json);

}  // namespace specdec
