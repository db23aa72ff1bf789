#include "models/utf8.h"

#include <fmt/format.h>

#include "backend/error.h"

namespace specdec {
namespace {

struct Lead {
  std::size_t length = 0;  // 0: no character starts with this byte
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

// Table 3-7 of the Unicode standard: the second byte's range shuts out overlong forms, surrogates and what lies above
// U+10FFFF.
Lead classify(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Unit utf8_unit(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const Lead lead = classify(first);
  if (lead.length == 0) return {Utf8Unit::Kind::kInvalid, 1, 0};
  if (lead.length == 1) return {Utf8Unit::Kind::kCharacter, 1, first};
  char32_t code_point = first & (0x7FU >> lead.length);
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (at + i == text.size()) return {Utf8Unit::Kind::kIncomplete, i, 0};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Unit::Kind::kInvalid, i, 0};
    code_point = (code_point << 6U) | (byte & 0x3FU);
  }
  return {Utf8Unit::Kind::kCharacter, lead.length, code_point};
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text, at);
    if (unit.kind != Utf8Unit::Kind::kCharacter) return at;
    at += unit.length;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text) {
  if (const auto at = first_invalid_utf8(text)) {
    throw_bad_input(fmt::format("text: found byte 0x{:02x} at offset {}, expected valid UTF-8",
                                static_cast<unsigned char>(text[*at]), *at));
  }
}

std::string take_valid_utf8(std::string& held, bool at_end) {
  std::string text;
  std::size_t at = 0;
  while (at < held.size()) {
    const Utf8Unit unit = utf8_unit(held, at);
    if (unit.kind == Utf8Unit::Kind::kIncomplete && !at_end) break;
    if (unit.kind == Utf8Unit::Kind::kCharacter) {
      text.append(held, at, unit.length);
    } else {
      text += "\xEF\xBF\xBD";
    }
    at += unit.length;
  }
  held.erase(0, at);
  return text;
}

std::string to_utf8(char32_t code_point) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  const auto tail = [&](unsigned shift) { return byte(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) return {byte(code_point)};
  if (code_point < 0x800) return {byte(0xC0U | (code_point >> 6U)), tail(0)};
  if (code_point < 0x10000) return {byte(0xE0U | (code_point >> 12U)), tail(6), tail(0)};
  return {byte(0xF0U | (code_point >> 18U)), tail(12), tail(6), tail(0)};
}

}  // namespace specdec
