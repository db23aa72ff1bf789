#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "models/regex.h"

namespace specdec {

/// Cuts text into the pieces inside which merges happen: a chain of steps, each applied to every piece of the one
/// before, as `tokenizers` does.
class Pretokenizer {
 public:
  struct Step {
    bool add_prefix_space = false;  ///< a piece that does not begin with a space gets one, before the pattern sees it
    std::vector<Regex> pattern;     ///< one or none; matches become pieces of their own ("Isolated")
  };
  using Sink = std::function<void(std::string_view)>;

  explicit Pretokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  /// Calls `piece` for each piece of `text` (valid UTF-8), in order. The views last only for the call.
  void split(std::string_view text, const Sink& piece) const { apply(0, text, piece); }

 private:
  void apply(std::size_t step, std::string_view text, const Sink& piece) const;

  std::vector<Step> steps_;
};

/// The pattern that `ByteLevel` with use_regex stands for (Radford et al. 2019).
std::string gpt2_pattern();

}  // namespace specdec
