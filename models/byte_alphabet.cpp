#include "models/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "models/utf8.h"

namespace specdec {
namespace {

// Printable Latin-1 bytes stand for themselves; the other 68 take the characters from U+0100 on, in order.
constexpr char32_t kFirstMoved = 0x100;
constexpr std::size_t kMoved = 68;

constexpr bool printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kFirstMoved + kMoved> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next = kFirstMoved;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = printable(byte) ? byte : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelled) {
  std::string bytes;
  for (std::size_t at = 0; at < spelled.size();) {
    const Utf8Unit unit = utf8_unit(spelled, at);
    if (unit.kind != Utf8Unit::Kind::kCharacter || unit.code_point >= kAlphabet.byte.size()) return std::nullopt;
    const std::int16_t byte = kAlphabet.byte[unit.code_point];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    at += unit.length;
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) spelled += to_utf8(kAlphabet.character[static_cast<unsigned char>(byte)]);
  return spelled;
}

}  // namespace specdec
