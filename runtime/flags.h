#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace specdec {

/// How every program reads its command line: fills in what `app` was told about and returns nothing, or the text of --help or
/// --version without its last line end, for the program to print and to end with. Throws kBadInput: one line, for an unknown flag with the
/// nearest one that there is.
std::optional<std::string> parse_flags(CLI::App& app, int argc, const char* const* argv);

}  // namespace specdec
