#include "runtime/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "backend/error.h"
#include "runtime/config_keys.h"
#include "runtime/config_load.h"
#include "runtime/config_prompts.h"
#include "runtime/flags.h"
#include "runtime/paths.h"
#include "runtime/version.h"
#include "runtime/yaml_value.h"

namespace specdec {
namespace {

constexpr const char* kAbout =
    "Generates text with a large target model, cut over the ranks of an MPI job, sped up by a small draft model that\n"
    "proposes tokens. The text goes to standard output as it is accepted, the report to standard error.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  mpirun -np 8 specdec_dist --config chinchilla-like.yaml\n"
    "  mpirun -np 2 specdec_dist --config minimal.yaml --set decode.k=6 --prompt 'def main():'\n"
    "  mpirun -np 2 specdec_dist --config minimal.yaml --set 'interconnect=[native, tpu-v4-chen]'\n"
    "                                     (on the machine's own and on a described interconnect, side by side)\n"
    "  specdec_dist --target assets/manpy-11m --draft assets/manpy-2m --prompt-file notes.txt --json report.json\n"
    "  specdec_dist --target DIR --prompt-ids '3 14 15'          (a model without a tokenizer)\n"
    "  specdec_dist --target DIR --set weights=random --prompt-random 512\n"
    "                                     (what a shape costs: DIR needs a config.json and no checkpoint)\n"
    "  specdec_dist --config chinchilla-70b.yaml --plan 8         (what each of 8 ranks would hold and do)\n"
    "All keys of a config, their defaults and ranges: specdec_dist --print-keys";

/// --prompt, --prompt-file, --prompt-ids and --prompt-random keep the order in which they stand.
void add_prompt_flags(CLI::App& app, CommandLine& command) {
  const auto add = [&](const char* flag, const char* value, const char* help, PromptArgument::Kind kind) {
    app.add_option_function<std::string>(
           flag,
           [&command, kind](const std::string& text) {
             command.prompts.push_back({kind, text});
           },
           help)
        ->type_name(value)
        ->trigger_on_parse();
  };
  add("--prompt", "TEXT", "Continue this text; repeatable, replaces the config's prompts", PromptArgument::Kind::kText);
  add("--prompt-file", "FILE", "Continue the whole text of a file", PromptArgument::Kind::kFile);
  add("--prompt-ids", "IDS", "Continue these token ids, '3 14 15'", PromptArgument::Kind::kIds);
  add("--prompt-random", "N", "Continue N random token ids, where only the length matters",
      PromptArgument::Kind::kRandom);
}

Prompt make_prompt(const PromptArgument& argument) {
  switch (argument.kind) {
    case PromptArgument::Kind::kFile:
      return prompt_from_file(argument.value, "--prompt-file");
    case PromptArgument::Kind::kIds:
      return prompt_from_ids(argument.value, "--prompt-ids");
    case PromptArgument::Kind::kRandom:
      return prompt_of_random_ids(argument.value, "--prompt-random");
    case PromptArgument::Kind::kText:
      break;
  }
  return prompt_from_text(argument.value, "--prompt");
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine command;
  std::string json;
  std::string trace;
  bool quiet = false;
  bool no_stream = false;
  bool print_keys = false;
  CLI::App app{kAbout, "specdec_dist"};
  app.footer(kExamples);
  app.add_option("--config", command.config,
                 "YAML file; a bare name is also looked up in configs/ and the installed ones")
      ->type_name("FILE");
  app.add_option_function<std::string>(
         "--set", [&](const std::string& text) { command.set.push_back(text); },
         "Change one key of the config; repeatable")
      ->type_name("KEY=VALUE")
      ->trigger_on_parse();
  app.add_option("--target", command.target, "Directory of the target model")->type_name("DIR");
  app.add_option("--draft", command.draft, "Directory of the draft model; '' for none")->type_name("DIR");
  add_prompt_flags(app, command);
  app.add_option("--json", json, "Write the report as JSON (docs/report.schema.json)")->type_name("OUT");
  app.add_option("--trace", trace, "Write what every rank did when, as a timeline for Perfetto (docs/tracing.md)")
      ->type_name("DIR");
  const CLI::Option* const plan =
      app.add_option(
             "--plan", command.plan,
             "Print what each of so many ranks would hold, read, compute and send, and whether it fits, and exit "
             "(default: the job's own ranks)")
          ->type_name("[RANKS]")
          ->expected(0, 1);
  app.add_flag("--no-stream", no_stream, "No text on standard output");
  app.add_flag("--quiet", quiet, "No report on standard error");
  app.add_flag("--print-keys", print_keys, "Print all config keys as a Markdown page and exit");
  app.set_version_flag(
      "--version", [] { return version_text("specdec_dist"); }, "Print the version and exit");
  command.print = parse_flags(app, argc, argv);
  if (print_keys && !command.print) {
    command.print = configuration_page();
    command.print->pop_back();  // its line end, as parse_flags leaves it out
  }
  if (json.empty() && app.count("--json") > 0) throw_bad_input("--json: found nothing, expected the name of a file");
  if (trace.empty() && app.count("--trace") > 0)
    throw_bad_input("--trace: found nothing, expected the name of a directory");
  if (plan->count() > 0) {
    if (plan->results().empty() || plan->results().front().empty()) {
      command.plan = 0;
    } else if (!command.plan || *command.plan < 1 || *command.plan > kCanonicalSlices) {
      throw_bad_input(
          fmt::format("--plan: found {}, expected {}", plan->results().front(), integer_range(1, kCanonicalSlices)));
    }
  }
  command.json = json;
  command.trace = trace;
  command.stream = !no_stream;
  command.report = !quiet;
  return command;
}

RunConfig make_run_config(const CommandLine& command) {
  if (command.config.empty() && !command.target && command.set.empty()) {
    throw_bad_input(
        "command line: found neither --config nor --target, expected one, such as --config chinchilla-like.yaml "
        "(--help)");
  }
  LoadedConfig config;
  std::filesystem::path config_dir;
  std::string file;
  if (!command.config.empty()) {
    const std::filesystem::path found = find_config(command.config);
    config = load_config(found);
    config_dir = found.has_parent_path() ? found.parent_path() : ".";
    file = found.string() + ": ";
  }
  for (const std::string& assignment : command.set) set_key(config, assignment);
  if (command.target) config.run.target = *command.target;
  if (command.draft) config.run.draft = *command.draft;
  if (!command.prompts.empty()) {
    config.run.prompts.clear();
    for (const PromptArgument& prompt : command.prompts) config.run.prompts.push_back(make_prompt(prompt));
  }
  complete(config);
  const auto place = [&](const std::optional<std::string>& flag, const std::string& key) {
    return flag ? "--" + key : file + key;
  };
  config.run.target = find_model(config.run.target, config_dir, place(command.target, "target"));
  if (!config.run.draft.empty()) {
    config.run.draft = find_model(config.run.draft, config_dir, place(command.draft, "draft"));
  }
  return std::move(config.run);
}

}  // namespace specdec
