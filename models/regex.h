#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace specdec {

/// A regular expression over UTF-8 as tokenizer files write them: Oniguruma's syntax and classes, run by PCRE2 (JIT
/// where there is one). Immutable after construction, so one object serves several threads.
class Regex {
 public:
  /// Throws kBadInput, beginning with `where` (file and key), for a pattern that is broken or that PCRE2 would read
  /// differently.
  Regex(const std::string& pattern, std::string where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Calls `piece` for every match in `text` and for every non-empty stretch between matches, in order; together they
  /// are the text. `text` must be valid UTF-8.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

  /// Whether a match begins at the first byte.
  bool matches_at_start(std::string_view text) const;

 private:
  struct Compiled;
  class Search;
  std::unique_ptr<Compiled> compiled_;
  std::string where_;
};

/// `pattern` with Oniguruma's meanings (Ruby syntax, Unicode) spelled out for PCRE2. Throws kBadInput for constructs
/// that the two read differently and that are not translated.
std::string translate_oniguruma(const std::string& pattern, const std::string& where);

}  // namespace specdec
