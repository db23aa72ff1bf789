/// Text to token ids and back.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "backend/error.h"
#include "models/token_ids.h"
#include "models/tokenizer.h"
#include "parallel/program.h"
#include "runtime/flags.h"
#include "runtime/paths.h"
#include "runtime/stdout_text.h"
#include "runtime/version.h"

namespace specdec {
namespace {

struct Options {
  std::filesystem::path model;
  bool decode = false;
  bool add_special = false;
};

std::string read_stdin() {
  // Not std::cin, which takes an error for the end.
  std::string text;
  std::array<char, 65536> block{};
  for (;;) {
    const ssize_t size = ::read(STDIN_FILENO, block.data(), block.size());
    if (size == 0) return text;
    if (size > 0) {
      text.append(block.data(), static_cast<std::size_t>(size));
    } else if (errno != EINTR) {
      throw_bad_input(fmt::format("standard input: cannot be read: {}", std::strerror(errno)));
    }
  }
}

std::string encode(const Tokenizer& tokenizer, const Options& options) {
  std::string line;
  for (const Token id : tokenizer.encode(read_stdin(), options.add_special)) {
    if (!line.empty()) line += ' ';
    line += std::to_string(id);
  }
  return line + '\n';
}

void run(const Options& options) {
  const auto tokenizer = load_tokenizer(find_model(options.model, {}, "--model"));
  if (options.decode) {
    write_text(tokenizer->decode(parse_token_ids(read_stdin(), tokenizer->vocabulary(), "standard input")), [] {});
  } else {
    write_text(encode(*tokenizer, options), [] {});
  }
}

int program(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Turns text on standard input into token ids on standard output, or back.\n"
      "Needs only the tokenizer's files of a model directory: tokenizer.json, or vocab.json and merges.txt,\n"
      "or tokenizer.model.\n\n"
      "  printf 'def f(x):' | specdec_tokenize --model assets/manpy-11m\n"
      "  echo 676 278 7 87 325 | specdec_tokenize --model assets/manpy-11m --decode\n",
      "specdec_tokenize"};
  app.set_version_flag(
      "--version", [] { return version_text("specdec_tokenize"); }, "Print the version and exit");
  app.add_option("--model", options.model, "Model directory in Hugging Face's layout")->required();
  CLI::Option* decode =
      app.add_flag("--decode", options.decode,
                   "Read ids, white space between them, and write their bytes exactly, with no newline added");
  app.add_flag("--add-special", options.add_special,
               "Also add what the tokenizer puts around a text, such as a BOS token")
      ->excludes(decode);
  if (const std::optional<std::string> print = parse_flags(app, argc, argv)) {
    write_text(*print + "\n", [] {});
    return 0;
  }
  run(options);
  return 0;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  return specdec::run_local_program(argc, argv, [&] { return specdec::program(argc, argv); });
}
