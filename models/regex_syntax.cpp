#include <fmt/format.h>

#include <string_view>

#include "backend/error.h"
#include "models/regex.h"

namespace specdec {
namespace {

// Letters, marks and numbers that Unicode 15.0, 15.1 and 16.0 added. `tokenizers` knows them, PCRE2 10.42 (Debian 12) stops at
// Unicode 14; with a newer PCRE2 they are named twice, which changes nothing.
constexpr std::string_view kNewLetters =
    R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65})"
    R"(\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E})"
    R"(\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10})"
    R"(\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C})"
    R"(\x{18CFF}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED})"
    R"(\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr std::string_view kNewMarks =
    R"(\x{897}\x{CF3}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113B8}-\x{113C0}\x{113C2}\x{113C5})"
    R"(\x{113C7}-\x{113CA}\x{113CC}-\x{113D0}\x{113D2}\x{113E1}-\x{113E2}\x{11F00}-\x{11F01}\x{11F03})"
    R"(\x{11F34}-\x{11F3A}\x{11F3E}-\x{11F42}\x{11F5A}\x{13440}\x{13447}-\x{13455}\x{1611E}-\x{1612F}\x{1E08F})"
    R"(\x{1E4EC}-\x{1E4EF}\x{1E5EE}-\x{1E5EF})";
constexpr std::string_view kNewDigits =
    R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
    R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";
constexpr std::string_view kNewOtherNumbers = R"(\x{1D2C0}-\x{1D2D3})";

/// What to add to a property in a class. Other properties have the Unicode version of PCRE2.
std::string newer_members(std::string_view property) {
  if (property == "L") return std::string(kNewLetters);
  if (property == "M") return std::string(kNewMarks);
  if (property == "Nd") return std::string(kNewDigits);
  if (property == "N") return std::string(kNewDigits) + std::string(kNewOtherNumbers);
  return {};
}

/// What \w stands for: PCRE2's leaves out marks and takes every number.
std::string word_members() {
  return fmt::format("\\p{{Alphabetic}}{}\\p{{M}}{}\\p{{Nd}}{}\\p{{Pc}}", kNewLetters, kNewMarks, kNewDigits);
}

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
      case 'd':
        out_ += in_class_ ? fmt::format("\\p{{Nd}}{}", kNewDigits) : fmt::format("[\\p{{Nd}}{}]", kNewDigits);
        return;
      // PCRE2's \s also takes U+180E.
      case 's':
        out_ += "\\p{White_Space}";
        return;
      case 'S':
        out_ += "\\P{White_Space}";
        return;
      case 'w':
        out_ += in_class_ ? word_members() : fmt::format("[{}]", word_members());
        return;
      case 'W':
        if (in_class_) refuse("\\W inside a class");
        out_ += fmt::format("[^{}]", word_members());
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
    const std::string name = pattern_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const std::string members = fmt::format("\\p{{{}}}{}", name, newer_members(name));
    if (kind == 'P' && in_class_) {
      out_ += fmt::format("\\P{{{}}}", name);
    } else if (in_class_) {
      out_ += members;
    } else {
      out_ += fmt::format("[{}{}]", kind == 'P' ? "^" : "", members);
    }
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
