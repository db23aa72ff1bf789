#include "models/sentencepiece_charsmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "backend/error.h"

namespace specdec {
namespace {

/// Reads the fields of one serialised protobuf message. Groups, which no SentencePiece model has, count as broken.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  struct Field {
    std::uint64_t number = 0;
    std::string_view bytes;  ///< of a length-delimited field, else empty
  };
  /// The next one; none at the end or where the message breaks off.
  std::optional<Field> next() {
    const std::optional<std::uint64_t> key = rest_.empty() ? std::nullopt : varint();
    if (!key) return std::nullopt;
    Field field{.number = *key >> 3U, .bytes = {}};
    std::optional<std::uint64_t> length;
    switch (*key & 7U) {
      case 0:
        if (!varint()) return std::nullopt;
        return field;
      case 1:
        length = 8;
        break;
      case 2:
        length = varint();
        break;
      case 5:
        length = 4;
        break;
      default:
        break;
    }
    if (!length || *length > rest_.size()) return fail();
    field.bytes = (*key & 7U) == 2 ? rest_.substr(0, *length) : std::string_view();
    rest_.remove_prefix(*length);
    return field;
  }
  bool broken() const { return broken_; }

 private:
  std::nullopt_t fail() {
    broken_ = true;
    return std::nullopt;
  }
  std::optional<std::uint64_t> varint() {
    constexpr unsigned kMostBytes = 10;
    std::uint64_t value = 0;
    for (unsigned i = 0; i < kMostBytes && !rest_.empty(); ++i) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << (7 * i);
      if (byte < 0x80U) return value;
    }
    return fail();
  }

  std::string_view rest_;
  bool broken_ = false;
};

/// A double-array trie as darts-clone lays it out, which is how the library walks it: from a unit at `position` its children lie at
/// (position ^ offset) ^ byte, where the child's label is that byte, and its value at position ^ offset.
class Trie {
 public:
  Trie(std::string_view bytes, std::size_t values) : units_(bytes.size() / sizeof(std::uint32_t)), values_(values) {
    std::memcpy(units_.data(), bytes.data(), units_.size() * sizeof(std::uint32_t));
    matches_.assign(units_.size(), kUnseen);
  }

  /// Whether no text leads outside of the units or the values, and none finds more prefixes than the library has room for.
  bool safe() { return !units_.empty() && most_matches(0, 0) <= kMostMatches; }

 private:
  static constexpr int kMostMatches = 32;
  static constexpr int kUnseen = -1;
  static constexpr int kBroken = kMostMatches + 1;
  /// No rule replaces more bytes than this; a trie that is deeper has a cycle.
  static constexpr int kDeepest = 256;

  /// The most values on one way down from `position`, or kBroken.
  int most_matches(std::size_t position, int depth) {  // NOLINT(misc-no-recursion): kDeepest bounds it
    if (matches_[position] != kUnseen) return matches_[position];
    if (depth > kDeepest) return kBroken;
    const std::uint32_t unit = units_[position];
    const std::uint32_t offset = (unit >> 10U) << ((unit & (1U << 9U)) >> 6U);
    const std::size_t base = position ^ offset;
    if ((base | 0xFFU) >= units_.size()) return kBroken;
    int below = 0;
    for (std::uint32_t byte = 0; byte < 256 && below != kBroken; ++byte) {
      constexpr std::uint32_t kLabel = (1U << 31U) | 0xFFU;
      if ((units_[base ^ byte] & kLabel) == byte) {
        below = std::max(below, most_matches(base ^ byte, depth + 1));
      }
    }
    const bool has_value = position != 0 && (unit & (1U << 8U)) != 0;
    if (has_value && (units_[base] & ~(1U << 31U)) >= values_) return kBroken;
    matches_[position] = std::min(kBroken, below + (has_value ? 1 : 0));
    return matches_[position];
  }

  std::vector<std::uint32_t> units_;
  std::vector<int> matches_;  ///< what most_matches() has found, by unit
  std::size_t values_;        ///< values are offsets into so many bytes
};

/// The bytes of a charsmap: the size of the trie, the trie, and the strings that replace, each with a zero at its end.
bool is_sound(std::string_view charsmap) {
  std::uint32_t trie_bytes = 0;
  if (charsmap.empty()) return true;
  if (charsmap.size() <= sizeof trie_bytes || charsmap.back() != '\0') return false;
  std::memcpy(&trie_bytes, charsmap.data(), sizeof trie_bytes);
  charsmap.remove_prefix(sizeof trie_bytes);
  if (trie_bytes < sizeof(std::uint32_t) || trie_bytes >= charsmap.size()) return false;
  return Trie(charsmap.substr(0, trie_bytes), charsmap.size() - trie_bytes).safe();
}

}  // namespace

void check_charsmap(std::string_view model, const std::string& file) {
  constexpr std::uint64_t kNormalizerSpec = 3;
  constexpr std::uint64_t kDenormalizerSpec = 5;
  constexpr std::uint64_t kPrecompiledCharsmap = 2;
  Fields fields(model);
  while (const auto field = fields.next()) {
    if (field->number != kNormalizerSpec && field->number != kDenormalizerSpec) continue;
    Fields spec(field->bytes);
    while (const auto entry = spec.next()) {
      if (entry->number == kPrecompiledCharsmap && !is_sound(entry->bytes)) {
        throw_bad_input(
            fmt::format("{}: found normalizer_spec.precompiled_charsmap of {} bytes that are no rules, "
                        "expected a SentencePiece model's",
                        file, entry->bytes.size()));
      }
    }
    if (spec.broken()) {
      throw_bad_input(fmt::format("{}: found a broken normalizer_spec, expected a SentencePiece model's", file));
    }
  }
  if (fields.broken()) {
    throw_bad_input(fmt::format("{}: found {} bytes that are no protobuf message, expected a SentencePiece model", file,
                                model.size()));
  }
}

}  // namespace specdec
