#include "models/pretokenizer.h"

#include <string>

namespace specdec {

void Pretokenizer::apply(std::size_t step, std::string_view text, const Sink& piece) const {
  if (step == steps_.size()) {
    piece(text);
    return;
  }
  const Step& current = steps_[step];
  std::string prefixed;
  if (current.add_prefix_space && !text.starts_with(' ')) {
    prefixed = " ";
    prefixed += text;
    text = prefixed;
  }
  if (current.pattern.empty()) {
    apply(step + 1, text, piece);
  } else {
    current.pattern.front().split(text, [&](std::string_view part) { apply(step + 1, part, piece); });
  }
}

std::string gpt2_pattern() { return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"; }

}  // namespace specdec
