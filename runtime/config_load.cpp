#include "runtime/config_load.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "backend/error.h"
#include "parallel/transports.h"
#include "runtime/config_keys.h"
#include "runtime/config_prompts.h"
#include "runtime/transport_choice.h"

namespace specdec {
namespace {

std::string_view section_example(std::string_view section) {
  return section == "decode" ? "decode.k=4" : "parallel.threads=1";
}

}  // namespace

LoadedConfig parse_config(const std::string& yaml, const std::string& name, const std::filesystem::path& directory) {
  LoadedConfig config;
  config_key_names().read(read_yaml_map(yaml, name), {.name = name, .directory = directory}, config.given,
                          [&](const std::string& key, const YAML::Node& value, const YamlPlace& place) {
                            find_key(key)->assign(config.run, value, place);
                          });
  return config;
}

LoadedConfig load_config(const std::filesystem::path& file) {
  return parse_config(read_named_file(file, "--config"), file.string(), file.parent_path());
}

void set_key(LoadedConfig& config, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    throw_bad_input(fmt::format("--set: found '{}', expected key=value", assignment));
  }
  const std::string name(assignment.substr(0, equals));
  const std::string value(assignment.substr(equals + 1));
  require_yaml_text(value, "--set " + name);
  if (config_key_names().is_section(name)) {
    throw_bad_input(
        fmt::format("--set: '{}' is a section, expected one of its keys, such as {}", name, section_example(name)));
  }
  const YamlPlace place{.name = "--set", .directory = {}, .has_lines = false};
  const ConfigKey* key = find_key(name);
  config.given.erase(name);
  try {
    const bool plain = key == nullptr || key->plain;
    const YAML::Node node = plain ? YAML::Node(value) : YAML::Load(value);
    const YamlPlace here = config_key_names().enter(name, node, place, config.given);
    key->assign(config.run, node, here);
  } catch (const YAML::Exception& error) {
    throw_bad_input(fmt::format("--set: {}: found broken YAML ({}), expected {}", name, error.msg, key->accepts));
  }
}

void complete(LoadedConfig& config) {
  RunConfig& run = config.run;
  const bool has_draft = !run.draft.empty();
  if (run.target.empty()) throw_bad_input("target: found nothing, expected the directory of a model (--target DIR)");
  if (run.prompts.empty()) {
    throw_bad_input(
        "prompts: found none, expected at least one (--prompt, --prompt-file, --prompt-ids or --prompt-random)");
  }
  require_backend_for(run.parallel.transport, run.backend, "parallel.transport");
  for (const InterconnectChoice& choice : run.interconnects) {
    if (choice && is_on_device(run.parallel.transport)) {
      throw_bad_input(fmt::format(
          "interconnect: found {} with parallel.transport {}, expected native, or a transport of the host: nobody "
          "waits for a GPU after each of its collectives",
          choice->name, run.parallel.transport));
    }
  }
  if (!config.given.contains("decode.method")) {
    run.decode.method = has_draft ? Method::kSpeculative : Method::kAutoregressive;
  }
  if (!config.given.contains("compare")) {
    run.compare = run.decode.method == Method::kSpeculative && has_draft;
  }
  if (!has_draft && run.decode.method == Method::kSpeculative) {
    throw_bad_input(
        "decode.method: found speculative without a draft, expected a draft (--draft DIR) or autoregressive");
  }
  if (!has_draft && run.compare) {
    throw_bad_input("compare: found true without a draft, expected a draft (--draft DIR) or false");
  }
}

std::string serialise(const RunConfig& config) {
  nlohmann::json out;
  for (const ConfigKey& key : config_keys()) out[key.name] = key.write(config);
  return out.dump();
}

RunConfig deserialise(const std::string& text) {
  const auto in = nlohmann::json::parse(text);
  RunConfig config;
  for (const ConfigKey& key : config_keys()) key.read(config, in.at(key.name));
  return config;
}

}  // namespace specdec
