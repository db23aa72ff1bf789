#include <fmt/format.h>

#include "backend/error.h"
#include "models/regex.h"

namespace specdec {
namespace {

/// Walks a pattern once, copying it and putting PCRE2's spelling in place of what Oniguruma reads differently.
class Translator {
 public:
  Translator(const std::string& pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        escape();
      } else if (in_class_) {
        class_character();
      } else {
        character();
      }
    }
    return std::move(out_);
  }

 private:
  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a backslash at the end");
    const char kind = pattern_[at_ + 1];
    at_ += 2;
    switch (kind) {
      // PCRE2's \s also takes U+180E.
      case 's':
        out_ += "\\p{White_Space}";
        return;
      case 'S':
        out_ += "\\P{White_Space}";
        return;
      // PCRE2's \w leaves out marks and takes every number.
      case 'w':
        out_ += in_class_ ? "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" : "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
        return;
      case 'W':
        if (in_class_) refuse("\\W inside a class");
        out_ += "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
        return;
      case 'p':
      case 'P':
        property(kind);
        return;
      case 'h':
      case 'H':
      case 'R':
      case 'X':
      case 'K':
      case 'Z':
      case 'g':
      case 'k':
      case 'b':
      case 'B':
        refuse(fmt::format("\\{}", kind));
      default:
        out_ += '\\';
        out_ += kind;
    }
  }

  void property(char kind) {
    const std::size_t close = pattern_.find('}', at_);
    if (at_ == pattern_.size() || pattern_[at_] != '{' || close == std::string::npos) refuse("\\p without {name}");
    out_ += fmt::format("\\{}{}", kind, pattern_.substr(at_, close + 1 - at_));
    at_ = close + 1;
  }

  void class_character() {
    const char c = pattern_[at_];
    if (c == '[') refuse("a class inside a class");
    if (c == '&' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] == '&') refuse("&& inside a class");
    if (c == ']') in_class_ = false;
    out_ += c;
    ++at_;
  }

  void character() {
    const char c = pattern_[at_];
    out_ += c;
    ++at_;
    if (c == '[') {
      in_class_ = true;
      if (at_ < pattern_.size() && pattern_[at_] == '^') out_ += pattern_[at_++];
      // A bracket in the first place is a member.
      if (at_ < pattern_.size() && pattern_[at_] == ']') out_ += pattern_[at_++];
    } else if (c == '}' && at_ < pattern_.size() && pattern_[at_] == '+') {
      refuse("{n,m}+");  // possessive to PCRE2, a repeated repeat to Oniguruma
    } else if (c == '(' && pattern_.compare(at_, 2, "?m") == 0) {
      refuse("(?m");  // the dot takes newlines in Oniguruma
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw_bad_input(fmt::format("{}: found '{}', expected a regular expression without {}", where_, pattern_, what));
  }

  const std::string& pattern_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string translate_oniguruma(const std::string& pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace specdec
