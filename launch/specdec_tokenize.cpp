#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "backend/error.h"
#include "models/token_ids.h"
#include "models/tokenizer.h"
#include "runtime/version.h"

namespace specdec {
namespace {

struct Options {
  std::filesystem::path model;
  bool decode = false;
  bool add_special = false;
};

std::string read_stdin() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

void write_stdout(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw_bad_input("standard output: cannot be written to");
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
  const auto tokenizer = load_tokenizer(options.model);
  if (options.decode) {
    write_stdout(tokenizer->decode(parse_token_ids(read_stdin(), tokenizer->vocabulary(), "standard input")));
  } else {
    write_stdout(encode(*tokenizer, options));
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done);
  }
  run(options);
  return 0;
}

int failed(const char* what, int code) {
  std::fprintf(stderr, "specdec_tokenize: error: %s\n", what);
  return code;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  try {
    return specdec::program(argc, argv);
  } catch (const specdec::Error& error) {
    return specdec::failed(error.what(), specdec::exit_code(error.kind()));
  } catch (const CLI::ParseError& error) {
    return specdec::failed((std::string(error.what()) + " (see --help)").c_str(), 2);
  } catch (const std::exception& error) {
    return specdec::failed(error.what(), 1);
  }
}
