#include "runtime/byte_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "backend/error.h"
#include "runtime/parse_number.h"
#include "runtime/suggestion.h"

namespace specdec {
namespace {

constexpr std::size_t kKilo = 1024;
constexpr std::string_view kSizes = "bytes from 1 to 4G, such as 4096, 16K, 1K,1M or 1K..64M";

[[noreturn]] void reject_sizes(std::string_view flag, std::string_view found) {
  throw_bad_input(fmt::format("{}: found '{}', expected {}", flag, found, kSizes));
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::size_t parse_size(std::string_view text, std::string_view flag) {
  std::string_view digits = text;
  std::size_t unit = 1;
  if (!text.empty()) {
    const std::size_t power = std::string_view("KkMmGg").find(text.back());
    if (power != std::string_view::npos) {
      for (std::size_t i = 0; i <= power / 2; ++i) unit *= kKilo;
      digits.remove_suffix(1);
    }
  }
  const std::optional<std::uint64_t> value = parse_number<std::uint64_t>(digits);
  if (!value || *value < 1 || *value > kLargestPayload / unit) reject_sizes(flag, text);
  return *value * unit;
}

}  // namespace

std::vector<std::size_t> parse_byte_sizes(std::string_view text, std::string_view flag) {
  std::vector<std::size_t> sizes;
  for (const std::string_view part : split(text)) {
    const std::size_t dots = part.find("..");
    if (dots == std::string_view::npos) {
      sizes.push_back(parse_size(part, flag));
      continue;
    }
    const std::size_t last = parse_size(part.substr(dots + 2), flag);
    const std::size_t first = parse_size(part.substr(0, dots), flag);
    if (first > last) {
      throw_bad_input(fmt::format("{}: found '{}', expected the smaller size first", flag, part));
    }
    for (std::size_t size = first; size <= last; size *= 2) sizes.push_back(size);
  }
  return sizes;
}

std::int64_t parse_count(std::string_view text, std::int64_t limit, std::string_view flag) {
  const std::optional<std::int64_t> value = parse_number<std::int64_t>(text);
  if (!value || *value < 1 || *value > limit) {
    throw_bad_input(fmt::format("{}: found '{}', expected a whole number from 1 to {}", flag, text, limit));
  }
  return *value;
}

std::vector<std::int64_t> parse_counts(std::string_view text, std::int64_t limit, std::string_view flag) {
  std::vector<std::int64_t> counts;
  for (const std::string_view part : split(text)) counts.push_back(parse_count(part, limit, flag));
  return counts;
}

std::vector<std::int64_t> parse_range(std::string_view text, std::int64_t limit, std::string_view flag) {
  const auto number = [&](std::string_view part) {
    const std::optional<std::int64_t> value = parse_number<std::int64_t>(part);
    if (!value || *value < 0 || *value > limit) {
      throw_bad_input(
          fmt::format("{}: found '{}', expected whole numbers from 0 to {}, such as 0..7 or 1,2,4", flag, text, limit));
    }
    return *value;
  };
  std::vector<std::int64_t> numbers;
  for (const std::string_view part : split(text)) {
    const std::size_t dots = part.find("..");
    const std::int64_t first = number(part.substr(0, dots));
    const std::int64_t last = dots == std::string_view::npos ? first : number(part.substr(dots + 2));
    if (first > last) {
      throw_bad_input(fmt::format("{}: found '{}', expected the smaller number first", flag, part));
    }
    for (std::int64_t value = first; value <= last; ++value) numbers.push_back(value);
  }
  return numbers;
}

std::string parse_word(std::string_view text, const std::vector<std::string>& known, std::string_view flag) {
  if (std::ranges::find(known, text) == known.end()) {
    throw_bad_input(fmt::format("{}: found '{}', expected one of {}{}", flag, text, fmt::join(known, ", "),
                                suggestion(text, known)));
  }
  return std::string(text);
}

std::vector<std::string> parse_words(std::string_view text, const std::vector<std::string>& known,
                                     std::string_view flag) {
  std::vector<std::string> words;
  for (const std::string_view part : split(text)) {
    if (std::ranges::find(known, part) == known.end()) {
      throw_bad_input(fmt::format("{}: found '{}', expected some of {}{}", flag, part, fmt::join(known, ","),
                                  suggestion(part, known)));
    }
    if (std::ranges::find(words, part) == words.end()) words.emplace_back(part);
  }
  return words;
}

std::string format_bytes(std::size_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes != 0 && bytes % kKilo == 0) {
    bytes /= kKilo;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

}  // namespace specdec
