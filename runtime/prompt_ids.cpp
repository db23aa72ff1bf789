#include "runtime/prompt_ids.h"

#include <fmt/format.h>

#include "backend/error.h"
#include "runtime/philox.h"

namespace specdec {

std::string prompt_name(std::size_t index) { return fmt::format("prompts[{}]", index); }

std::vector<Token> prompt_ids(const RunConfig& config, std::size_t index, const Tokenizer* tokenizer,
                              std::int64_t vocabulary) {
  const Prompt& prompt = config.prompts[index];
  if (prompt.random > 0) {
    std::vector<Token> ids(static_cast<std::size_t>(prompt.random));
    RandomKey key{
        .seed = config.decode.seed, .sequence = static_cast<std::uint32_t>(index), .purpose = Purpose::kPrompt};
    for (Token& id : ids) {
      id = static_cast<Token>(uniform(key) * static_cast<double>(vocabulary));
      ++key.position;
    }
    return ids;
  }
  if (prompt.ids) {
    return *prompt.ids;
  }
  const std::string name = prompt_name(index);
  if (tokenizer == nullptr) {
    throw_bad_input(
        fmt::format("{}: found text, but {} has no tokenizer; expected ids (--prompt-ids or --prompt-random)", name,
                    config.target.string()));
  }
  try {
    return tokenizer->encode(prompt.text, true);
  } catch (const Error& error) {
    throw Error(error.kind(), name + ": " + error.what());
  }
}

}  // namespace specdec
