#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// What the bytes at one place of a text are.
struct Utf8Unit {
  enum class Kind : unsigned char {
    kCharacter,   ///< a whole character
    kInvalid,     ///< a maximal ill-formed subpart (Unicode 15, section 3.9): one U+FFFD stands for it
    kIncomplete,  ///< the text ends inside a character that is well-formed so far
  };
  Kind kind = Kind::kInvalid;
  std::size_t length = 0;   ///< bytes, at least 1
  char32_t code_point = 0;  ///< of a whole character
};

/// The unit at `text[at]`; `at` must lie inside the text.
Utf8Unit utf8_unit(std::string_view text, std::size_t at);

/// Offset of the first byte that is not part of a well-formed character.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

/// Throws kBadInput, naming the byte, unless `text` is valid UTF-8.
void require_utf8(std::string_view text);

/// Moves everything from `held` that later bytes cannot change to the result, invalid sequences replaced by U+FFFD as
/// `bytes.decode(errors="replace")` does. With `at_end` nothing stays behind.
std::string take_valid_utf8(std::string& held, bool at_end);

/// UTF-8 of one code point.
std::string to_utf8(char32_t code_point);

}  // namespace specdec
