#include "runtime/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "backend/error.h"
#include "runtime/suggestion.h"

namespace specdec {
namespace {

/// The flag in "--promt X" that nobody knows, with the nearest one that there is.
std::string unknown_flag(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining();
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) flags.push_back(option->get_name());
  const std::string name = left.empty() ? "" : left.front().substr(0, left.front().find('='));
  return fmt::format("command line: unknown argument '{}'{} (--help lists all)", name, suggestion(name, flags));
}

}  // namespace

std::optional<std::string> parse_flags(CLI::App& app, int argc, const char* const* argv) {
  std::string text;
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    text = app.help();
  } catch (const CLI::CallForVersion& version) {
    text = version.what();
  } catch (const CLI::ExtrasError&) {
    throw_bad_input(unknown_flag(app));
  } catch (const CLI::ParseError& error) {
    throw_bad_input(fmt::format("command line: {} (--help lists all)", error.what()));
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace specdec
